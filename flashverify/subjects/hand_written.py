"""A subject of two functions: a forward, and a backward written by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError
from flashverify.outputs import BACKWARD
from flashverify.subjects.compiled import any_number_of_shapes
from flashverify.subjects.declared import DeclaredSubject
from flashverify.subjects.interface import Forward, Gradients

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

__all__ = ["Backward", "HandWrittenSubject"]

Backward = Callable[["Problem", Forward], Any]
"""Returns `Gradients`, or (dq, dk, dv), or a mapping of their names."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HandWrittenSubject(DeclaredSubject):
    """A subject whose backward is a function of the problem and of what its forward returned; autograd has no part in it."""

    backward_function: Backward

    def forward(self, problem: Problem) -> Forward:
        """Calls the function."""
        import torch

        with torch.no_grad(), any_number_of_shapes(), self.surroundings(problem):
            return self.returned(self.function(problem))

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """Calls the function of the backward.

        Raises:
            UsageError: it returned something else than gradients.
        """
        import torch

        with torch.no_grad(), any_number_of_shapes(), self.surroundings(problem):
            found = self.backward_function(problem, forward)
        if isinstance(found, Gradients):
            return found
        if isinstance(found, tuple | list) and len(found) == 3:
            return Gradients(*found)
        if isinstance(found, Mapping) and {"dq", "dk", "dv"} <= found.keys() <= set(BACKWARD):
            return Gradients(**found)
        raise UsageError(
            f"the backward of subject {self.name!r} returned {_described(found)}; accepted: Gradients, (dq, dk, dv), "
            f"or a mapping with dq, dk and dv, of {', '.join(BACKWARD)}"
        )


def _described(found: Any) -> str:
    if isinstance(found, Mapping):
        return f"a mapping of {', '.join(map(repr, found))}"
    return f"{len(found)} values" if isinstance(found, tuple | list) else f"a {type(found).__name__}"
