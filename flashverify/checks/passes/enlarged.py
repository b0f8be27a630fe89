"""A case with three sequences or heads: an index of 2 is what takes its product with a stride below 2^31 out of 32 bits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import of_sequences
from flashverify.checks.passes.derived_problems import work
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["with_heads", "with_sequences"]

_LEAST = 3
_WORK = 1 << 23
"""Multiply-adds of the forward beyond which a case is not enlarged."""


def with_sequences(subject: Subject, case: Case) -> Case:
    """The case with its sequences repeated until there are three; itself where it has them, or where that cannot be."""
    times = -(-_LEAST // max(case.batch, 1))
    if times == 1 or case.batch == 0 or case.mask.packed is not None:
        return case
    chosen = list(range(case.batch)) * times
    try:
        return _accepted(subject, case, batch=len(chosen), mask=of_sequences(case.mask, chosen, None))
    except UsageError:
        return case


def with_heads(subject: Subject, case: Case) -> Case:
    """The case with as many kv heads as make three or more, in groups as before; itself likewise."""
    times = -(-_LEAST // case.heads_kv)
    if times == 1:
        return case
    return _accepted(subject, case, heads_q=case.heads_q * times, heads_kv=case.heads_kv * times)


def _accepted(subject: Subject, case: Case, **changes: Any) -> Case:
    try:
        larger = dataclasses.replace(case, **changes)
    except UsageError:
        return case
    return case if work(larger) > _WORK or subject.supports.refusal(larger) is not None else larger
