"""Wrong semantics of an online softmax that autograd differentiates: what runs from one tile of keys to the next is a constant to it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import TILES, Semantics
from flashverify.outputs import OF_DS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypotheses.step_builds import Changes
    from flashverify.diagnosis.observation import Scene

__all__ = ["CUT_CHAINS"]


def _sum_cut(early: Tensor, s: Steps) -> Steps:
    """Early keys have no share of the row sum: delta and dLSE are lost there."""
    return replace(s, ds=torch.where(early, s.p * s.dp, s.formula()))


def _accumulator_cut(early: Tensor, s: Steps) -> Steps:
    """Early keys have no share of the numerator of O: dP is lost there, and so is dV."""
    rows = (s.dlse - s.delta).unsqueeze(-1)
    return replace(s, ds=torch.where(early, s.p * rows, s.formula()), p_dv=torch.where(early, 0.0, s.p_dv))


def _both_cut(early: Tensor, s: Steps) -> Steps:
    return replace(s, ds=torch.where(early, 0.0, s.formula()), p_dv=torch.where(early, 0.0, s.p_dv))


def _lse_cut(early: Tensor, s: Steps) -> Steps:
    return replace(s, ds=torch.where(early, s.p * (s.dp - s.delta.unsqueeze(-1)), s.formula()))


def _divisor_cut(early: Tensor, s: Steps) -> Steps:
    return replace(s, ds=torch.where(early, s.p * (s.dp + s.dlse.unsqueeze(-1)), s.formula()))


_CUTS = (
    ("the row sum", _sum_cut),
    ("the row sum of the LSE", _lse_cut),
    ("the row sum of O", _divisor_cut),
    ("the accumulator of O", _accumulator_cut),
    ("both sums", _both_cut),
)


def _early(scene: Scene) -> Iterator[tuple[str, Tensor]]:
    """Pairs whose key lies in another tile than the last one, `[B, 1, Sq, Sk]` or less, with the words of the tile."""
    at, see = scene.at, scene.inputs.visible
    key, keys = at.key[:, None, None, :], at.key_limit[:, None, None, :]
    for size in TILES:
        if size >= scene.case.seq_k:
            continue
        tile = key // size
        whole = torch.tensor((scene.case.seq_k - 1) // size)
        yield f"tiles of {size} keys", tile < (whole if scene.case.mask.packed is None else (keys - 1) // size)
        yield f"tiles of {size} keys within the length", tile < (keys - 1) // size
        if see is not None:
            last = torch.where(see, tile, -1).amax(3, keepdim=True)
            yield f"the tiles of {size} keys that a row sees", tile < last


def _cut(scene: Scene) -> Changes:
    for words, early in _early(scene):
        for name, change in _CUTS:
            yield f"{name}, {words}", partial(change, early)


CUT_CHAINS = (
    Semantics(
        name="running-sum-without-gradient",
        sentence="a running sum is a constant to autograd from one tile of keys to the next: the last tile alone has its gradient",
        build=by_steps(_cut),
        outputs=(*OF_DS, "dv"),
        one_way=True,
    ),
)
