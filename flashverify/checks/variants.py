"""Variants of a problem whose outputs must be, bit for bit, a part of its own or the same in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Case, Values
from flashverify.checks.derived_problems import like

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.problem import Pages, Problem
    from flashverify.checks.execution import Execution

__all__ = ["Select", "variants_of"]

Select = Callable[["torch.Tensor", str], "torch.Tensor | None"]
"""Maps (output, its name) to the part of it that belongs to a variant; None where the variant sums over other parts."""

# Axes of sequences and of heads, counted in query heads or kv heads; an axis of size 1 may be one for all.
_AXES: dict[str, tuple[int | None, int | None, bool]] = {
    "q": (0, 1, False),
    "k": (0, 1, True),
    "v": (0, 1, True),
    "do": (0, 1, False),
    "dlse": (0, 1, False),
    "key_lengths": (0, None, False),
    "query_lengths": (0, None, False),
    "bitmask": (0, 1, False),
    "blocks": (0, 1, False),
    "bias": (0, 1, False),
    "slopes": (None, 0, False),
    "sink": (None, 0, False),
}


def variants_of(base: Execution, variant: str) -> Iterator[tuple[Problem, Select]]:
    """The problems of a variant, each with the part of the base's outputs that its own must equal.

    Where the place of a sequence or a head in the problem is part of its definition, as with dropout, only repeats are left.
    """
    problem, case = base.problem, base.problem.case
    group = case.heads_q // case.heads_kv
    if variant == "repeat" or (variant == "program-order" and base.watch is not None):
        yield problem, lambda tensor, _: tensor
    elif case.dropout:
        return
    elif variant == "solo-sequence" and case.batch > 1:
        yield _part(problem, case.batch - 1, 1, 0, case.heads_kv), _last_sequence
    elif variant == "solo-head" and case.heads_kv > 1 and case.batch > 0:
        yield _part(problem, 0, case.batch, case.heads_kv - 1, 1), _last_head(problem, group)
    elif variant == "permuted" and (case.batch > 1 or case.heads_kv > 1) and not case.storage.expand:
        yield _permuted(problem), _reversed(problem, group)


def _last_sequence(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
    return None if name == "dsink" or (name == "dbias" and tensor.shape[0] == 1) else tensor[-1:]


def _last_head(problem: Problem, group: int) -> Select:
    def select(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
        if name == "dsink":
            return tensor[-group:]
        if name == "dbias" and tensor.shape[1] == 1:
            return None if problem.case.heads_q > group else tensor
        return tensor[:, -1:] if name in ("dk", "dv") else tensor[:, -group:]

    return select


def _reversed(problem: Problem, group: int) -> Select:
    def select(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
        summed = name == "dsink" and problem.case.batch > 1
        shared = name == "dbias" and tensor.shape[:2] != problem.case.shape_q[:2]
        if summed or shared:
            return None  # a sum in another order
        if name == "dsink":
            return _flip(tensor, 0, group)
        return _flip(tensor.flip(0), 1, 1 if name in ("dk", "dv") else group)

    return select


def _part(problem: Problem, first: int, count: int, head: int, heads: int) -> Problem:
    """Sequences `first ... first + count` and kv heads `head ... head + heads`, as views of the same memory."""
    case, group = problem.case, problem.case.heads_q // problem.case.heads_kv

    def cut(tensor: torch.Tensor, name: str) -> torch.Tensor:
        batch_axis, head_axis, by_kv = _AXES[name]
        if batch_axis is not None and _own(tensor, batch_axis, case.batch):
            tensor = tensor.narrow(batch_axis, first, count)
        size = 1 if by_kv else group
        if head_axis is not None and _own(tensor, head_axis, case.heads_kv * size):
            tensor = tensor.narrow(head_axis, head * size, heads * size)
        return tensor.contiguous() if name.endswith("lengths") else tensor

    def lengths(declared: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return declared if declared is None else declared[first : first + count]

    pages = problem.pages
    if pages is not None:
        pages = dataclasses.replace(
            pages,
            k=pages.k.narrow(2, head, heads),
            v=pages.v.narrow(2, head, heads),
            table=pages.table.narrow(0, first, count).contiguous(),
        )
    part = _recast(case, lengths, batch=count, heads_q=heads * group, heads_kv=heads)
    return _rebuild(problem, part, cut, pages)


def _permuted(problem: Problem) -> Problem:
    """Sequences and kv heads in reverse order, in new memory of the same strides."""
    case, group = problem.case, problem.case.heads_q // problem.case.heads_kv

    def flip(tensor: torch.Tensor, name: str) -> torch.Tensor:
        batch_axis, head_axis, by_kv = _AXES[name]
        turned = tensor
        if batch_axis is not None and _own(tensor, batch_axis, case.batch):
            turned = turned.flip(batch_axis)
        size = 1 if by_kv else group
        if head_axis is not None and _own(tensor, head_axis, case.heads_kv * size):
            turned = _flip(turned, head_axis, size)
        return like(tensor, turned)

    pages = problem.pages
    if pages is not None:
        pages = dataclasses.replace(
            pages, k=like(pages.k, pages.k.flip(2)), v=like(pages.v, pages.v.flip(2)), table=pages.table.flip(0)
        )
    turned = _recast(case, lambda declared: None if declared is None else declared[::-1])
    return _rebuild(problem, turned, flip, pages)


def _recast(case: Case, lengths: Callable[[tuple[int, ...] | None], tuple[int, ...] | None], **changes: Any) -> Case:
    """The case of a variant: its tensors are given, so edits of single values are left out."""
    mask = dataclasses.replace(
        case.mask, key_lengths=lengths(case.mask.key_lengths), query_lengths=lengths(case.mask.query_lengths)
    )
    return dataclasses.replace(
        case, mask=mask, values=Values(regime=case.values.regime, seed=case.values.seed), **changes
    )


def _rebuild(
    problem: Problem, case: Case, change: Callable[[torch.Tensor, str], torch.Tensor], pages: Pages | None
) -> Problem:
    changed: dict[str, Any] = {
        name: change(tensor, name) for name in _AXES if (tensor := getattr(problem, name)) is not None
    }
    return dataclasses.replace(problem, case=case, pages=pages, **changed)


def _own(tensor: torch.Tensor, axis: int, size: int) -> bool:
    """Whether the axis has an entry for each of `size`, not one for all."""
    return tensor.shape[axis] == size


def _flip(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """The axis in reverse order by blocks of `size`: the heads of one kv head stay together."""
    shape = tensor.shape
    blocks = tensor.reshape(*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])
    return blocks.flip(axis).flatten(axis, axis + 1)
