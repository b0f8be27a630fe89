"""The case that a subject is looked at on where none is named."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.case.case import Case, Grad
from flashverify.case.masks.mask import Mask
from flashverify.case.space.fit import fitted
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.supports import Supports

__all__ = ["LENGTH", "MASKS", "default_case"]

LENGTH = 256
MASKS = ("causal", "full")
_DIMS = (64, 128, 32, 96, 16, 48, 256, 8)


def default_case(supports: Supports, *, length: int = LENGTH, mask: str = "") -> Case:
    """One head of `length` rows and keys with head dimension 64, causal, forward and backward, as far as the subject takes it.

    Args:
        supports: what the subject declares.
        length: rows and keys; fewer rows where the subject takes no more.
        mask: one of `MASKS`; empty for causal where the subject has it.

    Raises:
        UsageError: an argument is not accepted, or the subject takes no such case.
    """
    if length < 1:
        raise UsageError(f"length={length} is not accepted: at least 1")
    if mask not in ("", *MASKS):
        raise UsageError(f"mask={mask!r} is not accepted: one of {', '.join(MASKS)}")
    reason = "it declares no dtype"
    for case in _candidates(supports, length, mask):
        found = fitted(supports, case)
        if found is not None:
            return found
        reason = supports.refusal(case) or reason
    raise UsageError(f"length={length} is not accepted by the subject: {reason}; name a case that it takes with --case")


def _candidates(supports: Supports, length: int, mask: str) -> Iterator[Case]:
    rows = min(length, supports.max_seq_q or length)
    masks = {"causal": Mask(causal="top-left" if rows == length else "bottom-right"), "full": Mask()}
    if mask != "full" and "top-left" not in supports.causal and supports.causal:
        masks["causal"] = Mask(causal="bottom-right")
    wanted = (mask,) if mask else MASKS
    for name in wanted:
        for dtype in supports.dtypes:
            for dim in _DIMS:
                case = Case(
                    seq_q=rows,
                    seq_k=length,
                    dim_qk=dim,
                    dim_v=dim,
                    dtype=dtype,
                    mask=masks[name],
                    grad=Grad(backward=supports.backward),
                )
                if supports.layouts and case.storage.layout not in supports.layouts:
                    storage = dataclasses.replace(case.storage, layout=supports.layouts[0])
                    case = dataclasses.replace(case, storage=storage)
                yield case
