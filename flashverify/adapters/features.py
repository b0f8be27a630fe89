"""Masks and modifiers of a problem in the words of other packages."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem

__all__ = ["left_of", "refusal_of_alibi", "window_of"]


def window_of(p: Problem) -> tuple[int, int]:
    """(left, right) as FlashAttention takes it: -1 is unbounded; no key to the right under causal."""
    left, right = p.window or (None, None)
    if p.causal is not None:
        right = 0 if right is None and p.window is not None else right
    return (-1 if left is None else left, -1 if right is None else right)


def left_of(p: Problem) -> int:
    """Keys to the left of a row that it sees; -1 is all of them."""
    left, _ = p.window or (None, None)
    return -1 if left is None else left


def refusal_of_alibi(case: Case) -> str | None:
    """Why a kernel whose ALiBi is always aligned at the last key is given no such case, or None."""
    if case.logits.alibi in (None, False) or case.mask.aligned_at_end or _same_lengths(case):
        return None
    return "ALiBi with as many keys as rows only, or with a mask that is aligned at the last key"


def _same_lengths(case: Case) -> bool:
    """Whether each sequence has as many keys as rows."""
    mask, packed = case.mask, case.mask.packed
    if packed is not None:
        rows, keys = ([b - a for a, b in pairwise(cu)] for cu in (packed.cu_q, packed.cu_k))
        return rows == keys
    rows = list(mask.query_lengths or (case.seq_q,) * case.batch)
    return rows == list(mask.key_lengths or (case.seq_k,) * case.batch)
