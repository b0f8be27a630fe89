"""Problems for subjects that take contiguous tensors alone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.memory.handed import copied
from flashverify.case.sections import LAYOUTS
from flashverify.case.tensors import TENSORS
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flashverify.case.problem import Problem

__all__ = ["contiguous_in", "made_contiguous"]


def made_contiguous(problem: Problem) -> Problem:
    """The problem with each tensor contiguous in the layout of its case; tensors that are so already stay what they are.

    Parts, permutations and extensions of a problem are views or lie in another order.
    """
    return _rearranged(problem, problem.case.storage.layout == "bshd", lambda _, tensor: tensor.contiguous())


def contiguous_in(problem: Problem, layout: str) -> Problem:
    """The problem with each tensor contiguous in a layout, by guarded copies of those that are not.

    Args:
        problem: left as it is.
        layout: one of `LAYOUTS`.

    Raises:
        UsageError: the layout is unknown.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"layout={layout!r} is not accepted: one of {', '.join(LAYOUTS)}")
    return _rearranged(problem, layout == "bshd", copied)


def _rearranged(problem: Problem, swapped: bool, copy: Callable[[str, torch.Tensor], torch.Tensor]) -> Problem:
    found: dict[str, Any] = {}
    for name, spec in TENSORS.items():
        tensor = getattr(problem, name)
        if tensor is not None:
            found[name] = _in_order(name, tensor, copy, swapped=swapped and spec.dtype in ("case", "uint8"))
    pages = problem.pages
    if pages is not None:  # `[P, page_size, Hkv, D]`: keys before heads
        pools = {
            name: _in_order(f"pages.{name}", pool, copy, swapped=pool.dim() == 4 and not swapped)
            for name, pool in pages.pools().items()
        }
        found["pages"] = dataclasses.replace(pages, **pools, table=_in_order("pages.table", pages.table, copy))
    return dataclasses.replace(problem, **found)


def _in_order(
    name: str, tensor: torch.Tensor, copy: Callable[[str, torch.Tensor], torch.Tensor], *, swapped: bool = False
) -> torch.Tensor:
    """Contiguous, with the second and third axis in the other order where `swapped`."""
    turned = tensor.transpose(1, 2) if swapped else tensor
    if turned.is_contiguous():
        return tensor
    made = copy(name, turned)
    return made.transpose(1, 2) if swapped else made
