"""Which rows and which keys of a large case the oracle judges: first and last ones, edges, the hardest to round, and any."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.space.tile_sizes import USUAL_TILE, tile_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from flashverify.case.case import Case
    from flashverify.truth import Inputs

__all__ = ["judged_keys", "judged_rows"]

_PAIRS = 1 << 24
"""Pairs of all heads and sequences that are judged along each of the two axes."""
_LEAST, _MOST = 24, 512
_LARGE_TILE = 128
_FIRST_POWER = 10
"""Powers of two from 2^10 on: integers of 16 bits, blocks of a split and pages end there."""
_ANY_TILE = 6
"""Tiles drawn by the seed whose edges are judged."""


def judged_rows(case: Case, inputs: Inputs, outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Numbers of the rows, ascending, int64; all of them where these are few enough.

    A third of them are those with the largest logits `|q| max |k|`, on which the bounds of O and the LSE grow, the largest terms
    `|dO| |O|` of delta, and the largest and smallest stored LSE.
    """
    largest_k = inputs.k.abs().amax((0, 1, 2)) if inputs.k.shape[2] else inputs.q.new_zeros(inputs.q.shape[3])
    scores = [inputs.q.abs() @ largest_k]
    if inputs.do is not None:
        scores.append((inputs.do.abs() * outputs["o"].double().abs()).sum(-1).nan_to_num(0.0))
    if "lse" in outputs:
        lse = outputs["lse"].double().nan_to_num(0.0, 0.0, 0.0)
        scores += [lse, -lse]
    ends = chain(case.rows_inside or (), () if case.mask.packed is None else case.mask.packed.cu_q)
    tile = tile_of(case.launch)[0]
    return _chosen(
        case, "rows", case.seq_q, case.seq_k, tile, ends, [_of_all(score) for score in scores], inputs.q.device
    )


def judged_keys(case: Case, inputs: Inputs) -> torch.Tensor:
    """Numbers of the keys, ascending, int64; all of them where these are few enough.

    A third of them are those with the largest logits `|k| max |q|` and the largest `|v| max |dO|`, on which the bounds of dK and dV grow.
    """
    scores = [inputs.k.abs() @ inputs.q.abs().amax((0, 1, 2))]
    if inputs.do is not None:
        scores.append(inputs.v.abs() @ inputs.do.abs().amax((0, 1, 2)))
    ends = chain(case.keys_inside or (), () if case.mask.packed is None else case.mask.packed.cu_k)
    tile = tile_of(case.launch)[1]
    return _chosen(
        case, "keys", case.seq_k, case.seq_q, tile, ends, [_of_all(score) for score in scores], inputs.k.device
    )


def _of_all(score: torch.Tensor) -> torch.Tensor:
    """`[S]`: the largest of all sequences and heads of `[B, H, S]`."""
    return score.amax((0, 1))


def _chosen(
    case: Case, axis: str, size: int, other: int, tile: int, ends: Iterable[int], scores: list[torch.Tensor],
    device: torch.device,
) -> torch.Tensor:  # fmt: skip
    import torch

    count = min(_MOST, max(_LEAST, _PAIRS // max(1, case.batch * case.heads_q * other)))
    if count >= size:
        return torch.arange(size, device=device)
    source = np.random.default_rng([case.values.seed, axis == "keys"])
    third = count // 3
    edges = [place for place in _edges(size, tile, ends, source) if 0 <= place < size]
    if len(edges) > third:  # the first and the last position stand first
        edges = [*edges[:2], *source.choice(edges[2:], third - 2, replace=False)]
    found = set(map(int, edges))
    share = max(third // len(scores), 1)
    for score in scores:
        found.update(score.topk(min(share, size)).indices.tolist())
    for place in source.permutation(size).tolist():
        if len(found) >= count:
            break
        found.add(place)
    return torch.tensor(sorted(found), device=device)


def _edges(size: int, tile: int, ends: Iterable[int], source: np.random.Generator) -> list[int]:
    """The first and the last position, and both sides of each border of a sequence, a tile and a power of two."""
    borders = list(ends)
    for width in dict.fromkeys((tile, USUAL_TILE, _LARGE_TILE)):
        last = (size - 1) // width
        borders += [width, last * width, *(int(n) * width for n in source.integers(1, max(last, 1) + 1, _ANY_TILE))]
    borders += [1 << n for n in range(_FIRST_POWER, size.bit_length())]
    return list(dict.fromkeys([0, size - 1, *(place for border in borders for place in (border - 1, border))]))
