"""Elementwise functions of several outputs, computed in the operations of one: each output of a few elements costs its operations, not its elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.numerics.result import OutputBound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

__all__ = ["Bounds", "bounds_of_each"]

_MOST = 1 << 22
"""Elements up to which a GPU is given several outputs as one; a CPU, whose operations cost less, is given fewer."""
_MOST_ON_CPU = 1 << 15
_FIELDS = ("bound", "self_error", "may_overflow", "may_flip", "must_overflow", "uninformative")


class Bounds(NamedTuple):
    """Bounds of several outputs.

    Attributes:
        each: in the order of the outputs, in their shapes.
        made: the same elements as they were computed, in fewer tensors.
    """

    each: list[OutputBound]
    made: list[OutputBound]


def bounds_of_each(function: Callable[..., OutputBound], outputs: Sequence[tuple[Tensor, ...]]) -> Bounds:
    """What an elementwise function says of each output.

    Args:
        function: of the tensors of one output; each element of its bound depends on their elements there alone.
        outputs: tensors that broadcast to the first of their output, and have the dtypes of those of every other one.
    """
    shapes = [first.shape for first, *_ in outputs]
    sizes = [math.prod(shape) for shape in shapes]
    if len(outputs) < 2 or sum(sizes) > (_MOST if outputs[0][0].is_cuda else _MOST_ON_CPU):
        alone = [function(*tensors) for tensors in outputs]
        return Bounds(alone, alone)
    rows = [
        [(x if x.shape == shape else x.expand(shape)).reshape(-1) for x in tensors]
        for tensors, shape in zip(outputs, shapes, strict=True)
    ]
    whole = function(*(torch.cat(parts) for parts in zip(*rows, strict=True)))
    held = {name: getattr(whole, name) for name in _FIELDS}
    parts = {x: x.split(sizes) for x in set(held.values())}  # some fields are one tensor
    views = {x: [part.view(shape) for part, shape in zip(parts[x], shapes, strict=True)] for x in parts}
    each = [OutputBound(**{name: views[x][number] for name, x in held.items()}) for number in range(len(shapes))]
    return Bounds(each, [whole])
