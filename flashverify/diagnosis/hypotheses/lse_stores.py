"""An LSE that is stored by other limits of sequences, or with other room for rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.wiring import stored
from flashverify.diagnosis.hypothesis import TILES, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["LSE_STORES"]


def _by_key_limits(scene: Scene, own: Tensor) -> Iterator[tuple[Tensor, str]]:
    """Rows begin where the keys of their sequence do; of two that lie at one place either one may have been stored last."""
    packed = scene.case.mask.packed
    if packed is None or own.shape[-1] == 0:
        return
    limits = list(zip(pairwise(packed.cu_q), packed.cu_k, strict=False))
    for order, words in ((limits, "a later sequence over an earlier one"), (limits[::-1], "an earlier over a later")):
        found = own * 0 - 1
        for (first, end), to in order:
            count = min(end - first, max(own.shape[-1] - to, 0))
            found[..., to : to + count] = own[..., first : first + count]
        yield found, words


def _row_room(_scene: Scene, own: Tensor) -> Iterator[tuple[Tensor, str]]:
    """A head has room for its rows up to a multiple of a tile where it is written, or where it is read."""
    rows = own.shape[2]
    for size in TILES if rows and own.shape[:2].numel() > 1 else ():
        room = -(-rows // size) * size
        if room > rows:
            read = torch.where(own % room < rows, own // room * rows + own % room, -1)
            yield read, f"a multiple of {size}"
            read = own // rows * room + own % rows
            yield torch.where(read < own.numel(), read, -1), f"a multiple of {size}, where it is read"


LSE_STORES = (
    Semantics(
        name="lse-stored-by-key-limits",
        sentence="the LSE of packed sequences is stored where their keys begin (cu_seqlens_k), not where their queries do (cu_seqlens_q)",
        build=stored(_by_key_limits),
        outputs=FORWARD,
    ),
    Semantics(
        name="lse-rows-of-whole-tiles",
        sentence="the rows of the LSE are rounded up to whole tiles in the stride from head to head",
        build=stored(_row_room),
    ),
)
