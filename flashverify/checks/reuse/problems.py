"""Other problems for the memory of one: other values, shorter lengths, and a larger problem beside it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Storage, Values
from flashverify.case.masks.mask import LENGTHS, Mask
from flashverify.case.memory.materialize import materialize
from flashverify.case.space.fit import fitted
from flashverify.checks.passes.derived_problems import FLOATS, overwrite, plain, work

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject

    Changes = list[tuple[torch.Tensor, torch.Tensor]]

__all__ = ["larger", "length_changes", "overwritten", "shorter", "value_changes", "with_other_values"]

LARGEST = 1 << 24
"""Multiply-adds of the forward up to which a larger problem is asked beside a case."""


@contextlib.contextmanager
def overwritten(changes: Changes) -> Iterator[None]:
    """Each first tensor holds the values of its second one until the end of the block."""
    before = [target.clone() for target, _ in changes]
    for target, values in changes:
        overwrite(target, values)
    try:
        yield
    finally:
        for (target, _), values in zip(changes, before, strict=True):
            overwrite(target, values)


def with_other_values(case: Case) -> Case:
    """The case with normal values of another seed."""
    return dataclasses.replace(case, values=Values(regime="normal", seed=case.values.seed ^ 1))


def value_changes(problem: Problem) -> Changes:
    """The tensors of the problem, each with normal values of another seed; padding and pages as they lie."""
    other, _ = materialize(with_other_values(problem.case), problem.q.device)
    pairs = [(getattr(problem, name), getattr(other, name)) for name in FLOATS]
    found = [(target, value) for target, value in pairs if target is not None]
    if problem.pages is not None and other.pages is not None:
        found += [
            (problem.pages.k, other.pages.k),
            (problem.pages.v, other.pages.v),
            (problem.pages.table, other.pages.table),
        ]
    return found


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


def length_changes(problem: Problem, other: Problem) -> Changes:
    """The tensors of lengths of the problem, each with the lengths that the case of `other` declares."""
    found = []
    for name in LENGTHS:
        target = getattr(problem, name)
        if target is not None:
            found.append((target, target.new_tensor(getattr(other.case.mask, name))))
    return found


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
