"""Which tensor's padding reaches the outputs: an experiment, not a comparison of values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.memory.materialize import materialize
from flashverify.checks.left_open import outside, undefined_elements
from flashverify.checks.passes.execution import execute

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject

__all__ = ["PADDINGS", "padding_reaches"]

_TENSORS = ("q", "k", "v", "do")
PADDINGS = tuple(f"padding-of-{name}-multiplied" for name in _TENSORS)
"""Names: the padding of a tensor is multiplied by 0, which is 0 unless it is not finite."""

_FINITE = 3.0


def padding_reaches(subject: Subject, case: Case) -> tuple[str, str] | None:
    """The one tensor whose padding reaches an output only where it is not finite: name and sentence; None where there is no such one.

    Each tensor's elements outside the declared lengths are set, that tensor's alone: to a finite number, which must change
    nothing, and to NaN.
    """
    plain = replace(case, storage=replace(case.storage, padding="zero"))
    base = _outputs(subject, plain, None, 0.0)
    found = []
    for name in _TENSORS:
        finite, lost = _outputs(subject, plain, name, _FINITE), _outputs(subject, plain, name, math.nan)
        if finite is None or lost is None or base is None:
            continue
        if any(not torch.equal(finite[output], base[output]) for output in base):
            return None
        reached = [output for output in base if bool((torch.isnan(lost[output]) & ~torch.isnan(base[output])).any())]
        if reached:
            found.append((name, reached))
    if len(found) != 1:
        return None
    name, reached = found[0]
    tensor = {"do": "dO"}.get(name, name.upper())
    sentence = (
        f"the padding of {tensor} is read and multiplied by 0, and 0 * NaN is NaN; it reaches {', '.join(reached)}"
    )
    return f"padding-of-{name}-multiplied", sentence


def _outputs(subject: Subject, case: Case, name: str | None, value: float) -> dict[str, Tensor] | None:
    """The outputs with the padding of one tensor set, with 0 where nobody promises a value; None where it has none."""
    problem, _ = materialize(case, subject.device())
    if name is not None and not _fill(problem, name, value):
        return None
    found = {output: x.detach().cpu() for output, x in execute(subject, problem).outputs.items()}
    open_ = undefined_elements(problem, subject.contract)
    return {output: x.masked_fill(open_[output].cpu(), 0.0) if output in open_ else x for output, x in found.items()}


def _fill(problem: Problem, name: str, value: float) -> bool:
    """Sets what lies outside the lengths in one tensor; False where nothing does."""
    tensor, case = getattr(problem, name), problem.case
    if problem.pages is not None and name in ("k", "v") and case.quantised is None:
        return _fill_pages(problem, getattr(problem.pages, name), value)
    if tensor is None or (name == "do" and case.grad.do == "expanded"):
        return False
    beyond = outside(problem).get({"q": "dq", "k": "dk", "v": "dv", "do": "o"}[name])
    if beyond is None or not bool(beyond.any()):
        return False
    tensor.masked_fill_(beyond, value)
    return True


def _fill_pages(problem: Problem, pool: Tensor, value: float) -> bool:
    """The rest of the last page of each sequence."""
    pages, case = problem.pages, problem.case
    size = case.storage.page_size
    assert pages is not None
    assert size is not None
    filled = False
    for b, length in enumerate(case.keys_inside or (case.seq_k,) * case.batch):
        if length % size:
            pool[int(pages.table[b, length // size]), length % size :] = value
            filled = True
    return filled
