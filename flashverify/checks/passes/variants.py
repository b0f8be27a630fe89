"""Variants of a problem whose outputs must be, bit for bit, a part of its own or the same in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Case, Values
from flashverify.case.masks.mask import of_sequences
from flashverify.case.tensors import TENSORS
from flashverify.checks.passes.derived_problems import like
from flashverify.outputs import output

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.problem import Pages, Problem
    from flashverify.case.tensors import TensorSpec
    from flashverify.checks.passes.execution import Execution

__all__ = ["Select", "variants_of"]

Select = Callable[["torch.Tensor", str], "torch.Tensor | None"]
"""Maps (output, its name) to the part of it that belongs to a variant; None where the variant sums over other parts."""


def variants_of(base: Execution, variant: str) -> Iterator[tuple[Problem, Select]]:
    """The problems of a variant, each with the part of the base's outputs that its own must equal.

    Where the place of a sequence or a head in the problem is part of its definition, as with dropout, only repeats are left.
    """
    problem, case = base.problem, base.problem.case
    if variant == "repeat" or (variant == "program-order" and base.watch is not None):
        yield problem, lambda tensor, _: tensor
    elif case.dropout:
        return
    elif variant == "solo-sequence" and case.batch > 1:
        yield _part(problem, case.batch - 1, 1, 0, case.heads_kv), _last_sequence
    elif variant == "solo-head" and case.heads_kv > 1 and case.batch > 0:
        yield _part(problem, 0, case.batch, case.heads_kv - 1, 1), _last_head(problem)
    elif variant == "permuted" and (case.batch > 1 or case.heads_kv > 1) and not case.storage.expand:
        yield _permuted(problem), _reversed(problem)


def _last_sequence(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
    axis = output(name).axis("batch")
    return None if axis is None or tensor.shape[axis] == 1 else tensor[-1:]


def _heads(problem: Problem, name: str) -> tuple[int | None, int, int]:
    """The axis of the heads of an output, how many it has where none is shared, and how many belong to one kv head."""
    spec, case = output(name), problem.case
    if (axis := spec.axis("head_kv")) is not None:
        return axis, case.heads_kv, 1
    return spec.axis("head_q"), case.heads_q, case.heads_q // case.heads_kv


def _last_head(problem: Problem) -> Select:
    def select(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
        axis, heads, size = _heads(problem, name)
        if axis is None or not _own(tensor, axis, heads):
            return None
        return tensor.narrow(axis, heads - size, size)

    return select


def _reversed(problem: Problem) -> Select:
    batch = problem.case.batch

    def select(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
        sequences = output(name).axis("batch")
        axis, heads, size = _heads(problem, name)
        summed = batch > 1 if sequences is None else not _own(tensor, sequences, batch)
        if summed or axis is None or not _own(tensor, axis, heads):
            return None  # a sum in another order
        return _flip(tensor if sequences is None else tensor.flip(sequences), axis, size)

    return select


def _part(problem: Problem, first: int, count: int, head: int, heads: int) -> Problem:
    """Sequences `first ... first + count` and kv heads `head ... head + heads`, as views of the same memory."""
    case, group = problem.case, problem.case.heads_q // problem.case.heads_kv

    def cut(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
        batch_axis, head_axis, size = _axes(spec, group)
        if batch_axis is not None and _own(tensor, batch_axis, case.batch):
            tensor = tensor.narrow(batch_axis, first, count)
        if head_axis is not None and _own(tensor, head_axis, case.heads_kv * size):
            tensor = tensor.narrow(head_axis, head * size, heads * size)
        return tensor.contiguous() if spec.dtype == "int32" else tensor

    pages = problem.pages
    if pages is not None:
        pages = dataclasses.replace(
            pages,
            **{name: pool.narrow(2, head, heads) for name, pool in pages.pools().items()},
            table=pages.table.narrow(0, first, count).contiguous(),
        )
    part = _recast(case, list(range(first, first + count)), batch=count, heads_q=heads * group, heads_kv=heads)
    return _rebuild(problem, part, cut, pages)


def _permuted(problem: Problem) -> Problem:
    """Sequences and kv heads in reverse order, in new memory of the same strides."""
    case, group = problem.case, problem.case.heads_q // problem.case.heads_kv

    def flip(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
        batch_axis, head_axis, size = _axes(spec, group)
        turned = tensor
        if batch_axis is not None and _own(tensor, batch_axis, case.batch):
            turned = turned.flip(batch_axis)
        if head_axis is not None and _own(tensor, head_axis, case.heads_kv * size):
            turned = _flip(turned, head_axis, size)
        return like(tensor, turned)

    pages = problem.pages
    if pages is not None:
        pools = {name: like(pool, pool.flip(2)) for name, pool in pages.pools().items()}
        pages = dataclasses.replace(pages, **pools, table=pages.table.flip(0))
    turned = _recast(case, list(reversed(range(case.batch))))
    return _rebuild(problem, turned, flip, pages)


def _recast(case: Case, chosen: list[int], **changes: Any) -> Case:
    """The case of a variant with the `chosen` sequences: its tensors are given, so edits of single values are left out."""
    values = Values(regime=case.values.regime, seed=case.values.seed)
    mask = case.mask if case.mask.packed is not None else of_sequences(case.mask, chosen, None)
    return dataclasses.replace(case, mask=mask, values=values, **changes)


def _rebuild(
    problem: Problem, case: Case, change: Callable[[torch.Tensor, TensorSpec], torch.Tensor], pages: Pages | None
) -> Problem:
    changed: dict[str, Any] = {
        name: change(tensor, spec)
        for name, spec in TENSORS.items()
        if _axes(spec, 1)[:2] != (None, None) and (tensor := getattr(problem, name)) is not None
    }
    return dataclasses.replace(problem, case=case, pages=pages, **changed)


def _axes(spec: TensorSpec, group: int) -> tuple[int | None, int | None, int]:
    """Axes of sequences and of heads, and the entries of the latter for each kv head; an axis of size 1 may be one for all."""
    return spec.axis("batch", "sequence"), spec.axis("head_q", "head_kv"), 1 if "head_kv" in spec.axes else group


def _own(tensor: torch.Tensor, axis: int, size: int) -> bool:
    """Whether the axis has an entry for each of `size`, not one for all."""
    return tensor.shape[axis] == size


def _flip(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """The axis in reverse order by blocks of `size`: the heads of one kv head stay together."""
    shape = tensor.shape
    blocks = tensor.reshape(*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])
    return blocks.flip(axis).flatten(axis, axis + 1)
