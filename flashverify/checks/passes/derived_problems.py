"""Problems made from other problems: tensors changed, the memory they lie in kept alike, and launches that two of them share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Case, Storage, Values
from flashverify.case.refusals import rules_of_launches, rules_of_problems
from flashverify.case.tensors import TENSORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject, Supports

__all__ = ["FLOATS", "altered", "dense_case", "launches", "like", "overwrite", "pinned", "plain", "relaunched", "work"]

FLOATS = tuple(name for name, spec in TENSORS.items() if spec.replaceable)
"""The tensors of values; the slopes of ALiBi follow from the shape."""


def work(case: Case) -> int:
    """Multiply-adds of the forward: B Hq Sq Sk (D + Dv)."""
    return case.batch * case.heads_q * case.seq_q * case.seq_k * (case.dim_qk + case.dim_v)


def like(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`values` in memory of the strides and the alignment of `tensor`, on which compiled code may depend.

    Args:
        tensor: the model.
        values: of its shape and dtype; along an axis of stride 0 all alike, as in `tensor`.
    """
    import torch

    shift = tensor.data_ptr() % 16 // tensor.element_size()
    span = (
        1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel()
        else 0
    )
    memory = torch.empty(span + shift, dtype=tensor.dtype, device=tensor.device)
    made = memory.as_strided(tensor.shape, tensor.stride(), shift)
    overwrite(made, values)
    return made


def overwrite(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copies `values` into the memory of `target`; along an axis of stride 0 the first entry counts."""
    for axis, (size, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if stride == 0 and size > 1:
            target, values = target.narrow(axis, 0, 1), values.narrow(axis, 0, 1)
    target.detach().copy_(values)


def altered(problem: Problem, change: Callable[[torch.Tensor], torch.Tensor], *names: str) -> Problem:
    """The problem with `change` applied to some of its tensors, and to the pages that hold them; edits are in the tensors.

    Args:
        problem: left as it is.
        change: keeps shape and dtype; of a paged case it is given the pools `[P, page_size, Hkv, D]` too, but for codes.
        names: tensors of the problem; what it does not have is left out.
    """
    found: dict[str, Any] = {
        name: like(tensor, change(tensor)) for name in names if (tensor := getattr(problem, name)) is not None
    }
    if problem.pages is not None and problem.case.quantised is None:
        pools = {
            name: like(x, change(x))
            for name in ("k", "v")
            if name in names and (x := getattr(problem.pages, name)) is not None
        }
        found["pages"] = dataclasses.replace(problem.pages, **pools)
    return dataclasses.replace(problem, case=plain(problem.case), **found)


def plain(case: Case) -> Case:
    """The case without its edits: the tensors of an altered problem are given, not drawn."""
    return dataclasses.replace(case, values=Values(regime=case.values.regime, seed=case.values.seed))


def dense_case(case: Case, **changes: Any) -> Case:
    """A case for given, contiguous tensors: no edits, no gaps, no pages, the scale spelt out."""
    plainest: dict[str, Any] = {
        "storage": Storage(layout=case.storage.layout, kv=case.storage.kv),
        "scale": case.softmax_scale,
    }
    return dataclasses.replace(plain(case), **(plainest | changes))


def launches(subject: Subject, *cases: Case) -> Iterator[tuple[tuple[str, int], ...]]:
    """The launch parameters that the subject accepts for every one of `cases`, in the order of its declaration."""
    supports = subject.supports
    if any(refused for case in cases for refused, _ in rules_of_problems(supports, case)):
        return
    for launch in supports.launches():
        if all(_launchable(supports, dataclasses.replace(case, launch=launch)) for case in cases):
            yield launch


def _launchable(supports: Supports, case: Case) -> bool:
    """Whether a case that nothing but its launch parameters can make unsupported is supported."""
    return not any(refused for refused, _ in rules_of_launches(supports, case)) and (
        supports.refused_by_also(case) is None
    )


def pinned(subject: Subject, *cases: Case) -> tuple[tuple[str, int], ...] | None:
    """Launch parameters for all of `cases`: those of the first where it has any, otherwise picked by its seed; None where none fit."""
    own = cases[0].launch
    if own:
        fits = all(subject.supports.refusal(dataclasses.replace(case, launch=own)) is None for case in cases)
        return own if fits else None
    found = list(launches(subject, *cases))
    return found[cases[0].values.seed // 7 % len(found)] if found else None


def relaunched(problem: Problem, launch: tuple[tuple[str, int], ...]) -> Problem:
    """The same tensors under other launch parameters."""
    return dataclasses.replace(problem, case=dataclasses.replace(problem.case, launch=launch))
