"""Other problems for the memory of one: other values, shorter lengths, and a larger problem beside it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Storage, Values
from flashverify.case.masks.mask import LENGTHS, Mask
from flashverify.case.memory.materialize import materialize
from flashverify.case.space.fit import fitted
from flashverify.checks.passes.derived_problems import FLOATS, plain, work

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject

__all__ = ["larger", "other_values", "shorter", "with_lengths_of", "with_other_values"]

LARGEST = 1 << 24
"""Multiply-adds of the forward up to which a larger problem is asked beside a case."""


def with_other_values(case: Case) -> Case:
    """The case with normal values of another seed."""
    return dataclasses.replace(case, values=Values(regime="normal", seed=case.values.seed ^ 1))


def other_values(problem: Problem) -> Problem:
    """The problem of `with_other_values` in memory of its own; the case, the masks and the lengths are those of `problem`."""
    other, _ = materialize(with_other_values(problem.case), problem.q.device)
    found = {name: getattr(other, name) for name in FLOATS if getattr(problem, name) is not None}
    return dataclasses.replace(problem, pages=other.pages, slopes=other.slopes, **found)  # wild slopes go by the seed


def shorter(subject: Subject, problem: Problem) -> Problem | None:
    """The problem with about half of each declared length, in the same tensors; None where no length is declared, all are 0, or the subject refuses it.

    Nor is there one of a paged problem under a window: shorter sequences need pages that the table does not name.
    """
    mask = problem.case.mask
    if problem.pages is not None and mask.window is not None:
        return None
    halves: dict[str, Any] = {
        name: tuple(length // 2 for length in lengths)
        for name in LENGTHS
        if (lengths := getattr(mask, name)) is not None and any(lengths)
    }
    if not halves:
        return None
    case = dataclasses.replace(problem.case, mask=dataclasses.replace(mask, **halves))
    return None if subject.supports.refusal(plain(case)) is not None else dataclasses.replace(problem, case=case)


def with_lengths_of(problem: Problem, other: Problem) -> Problem:
    """`problem` with the lengths that the case of `other` declares, in tensors of their own, and its case."""
    found = {
        name: target.new_tensor(getattr(other.case.mask, name))
        for name in LENGTHS
        if (target := getattr(problem, name)) is not None
    }
    return dataclasses.replace(problem, case=other.case, **found)


def larger(subject: Subject, case: Case) -> Case | None:
    """A case with more than twice the rows and keys, without the parts of the mask that go with a shape; None where none is supported."""
    seq_q = (
        case.seq_q * 2 + 1
        if subject.supports.max_seq_q is None
        else min(case.seq_q * 2 + 1, subject.supports.max_seq_q)
    )
    seq_k = max(case.seq_k * 2 + 1, seq_q)
    if case.mask.causal is not None and not subject.supports.rectangular_causal:
        seq_k = seq_q
    found = dataclasses.replace(
        case,
        seq_q=seq_q,
        seq_k=seq_k,
        scale=case.softmax_scale,
        mask=Mask(causal=case.mask.causal, window=case.mask.window, window_alignment=case.mask.window_alignment),
        values=Values(regime="normal", seed=case.values.seed ^ 1),
        storage=Storage(
            layout=case.storage.layout, page_size=case.storage.page_size, kept_pages=case.storage.kept_pages
        ),
    )
    within = fitted(subject.supports, found)
    return within if within is not None and work(within) <= LARGEST else None
