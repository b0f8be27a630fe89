"""Cases of packed sequences with one row or none each, as a step of decoding has them: decoding has kernels of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from flashverify.case.masks.mask import Mask, Packed
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = ["decoded"]

_ROWS = ((1, 0, 1, 1, 0, 1), (1, 1, 0, 1), (0, 1, 1), (1, 1, 1))
"""Rows of the sequences."""


def decoded(case: Case) -> Iterator[Case]:
    """Cases of several such sequences, where `case` has packed ones of at most one row; else none."""
    packed = case.mask.packed
    if packed is None or case.mask.tree is not None or max((q for q, _ in packed.lengths()), default=0) != 1:
        return
    for seed, rows in enumerate(_ROWS):
        cu_q = (0, *accumulate(rows))
        cu_k = (0, *accumulate(6 + 3 * n + 5 * seed for n in range(len(rows))))
        mask = replace(Mask(packed=Packed(cu_q, cu_k)), causal=case.mask.causal, window=case.mask.window)
        mask = replace(mask, window_alignment=case.mask.window_alignment)
        values = replace(case.values, regime="normal", seed=71 + seed, edits=())
        try:
            yield replace(case, seq_q=cu_q[-1], seq_k=cu_k[-1], mask=mask, values=values)
        except UsageError:
            continue
