"""Tuples with names that launches get: what depends on their numbers is made once, and at every launch the pointers are put in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flashverify.interpreter.hooks import tl
from flashverify.interpreter.keys import form_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.interpreter.binding import Binding

__all__ = ["Record", "contents"]

_TENSOR = tl.core.tensor


def contents(value: tuple[Any, ...], found: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Whether a tuple with names holds numbers, tensors, None and such tuples alone; `found` takes everything but the tensors, told apart.

    Args:
        value: the tuple.
        found: takes classes of tuples, numbers (floats by their bits), and of tensors their dtype.
        tensors: takes the tensors, in order.
    """
    if not hasattr(value, "_fields"):
        return False
    found.append(value.__class__)
    for x in value:
        kind = x.__class__
        if x is None or kind is int:
            found.append(x)
        elif kind is float:
            found.append(x.hex())
        elif kind is bool:
            found += (kind, x)
        elif isinstance(x, tuple):
            if not contents(x, found, tensors):
                return False
        elif isinstance(x, torch.Tensor):
            found.append(x.dtype)
            tensors.append(x)
        else:
            return False
    return True


class Record:
    """One tuple with names, as kernels get it.

    Args:
        made: the tuple, as it was made for a launch.
        pointers: the handles of the pointers in it, in order, each with its name.
    """

    def __init__(self, made: Any, pointers: list[tuple[str, Any]]) -> None:
        self._names = [name for name, _ in pointers]
        self._made = _Made(made, {id(pointer) for _, pointer in pointers})

    def bound(self, binding: Binding, given: list[torch.Tensor], pointers: list[Any]) -> Any:
        """The tuple with other tensors, which the arguments of a launch take in.

        Args:
            binding: of the launch.
            given: the tensors, in order.
            pointers: what the kernel gets for them.
        """
        for name, tensor, pointer in zip(self._names, given, pointers, strict=True):
            binding.tensors.append((name, tensor, pointer.handle))
        return self._made.bound(iter(pointers), binding.held)


class _Made:
    """A tuple, and where pointers are in it.

    Args:
        made: the tuple.
        pointers: identities of the handles of its pointers.

    Attributes:
        held: forms of the tuples without pointers among it and those in it, see `keys.hold`.
        holes: places of its pointers, and of tuples that hold some; with such a tuple, or None.
    """

    __slots__ = ("_form", "_made", "held", "holes")

    def __init__(self, made: Any, pointers: set[int]) -> None:
        inputs: list[Any] = []
        self._made, self._form = made, form_of(made, inputs)
        self.held: dict[int, tuple[Any, int, list[Any]]] = {}
        self.holes: list[tuple[int, _Made | None]] = []
        for n, x in enumerate(made):
            if isinstance(x, tuple):
                inner = _Made(x, pointers)
                if inner.holes:
                    self.holes.append((n, inner))
                self.held |= inner.held
            elif x.__class__ is _TENSOR and id(x.handle) in pointers:
                self.holes.append((n, None))
        if not self.holes:
            self.held[id(made)] = (made, self._form, inputs)

    def bound(self, pointers: Iterator[Any], held: dict[int, tuple[Any, int, list[Any]]]) -> Any:
        """The tuple with other pointers; `held` takes the forms."""
        held |= self.held
        return self._again(pointers, held) if self.holes else self._made

    def _again(self, pointers: Iterator[Any], held: dict[int, tuple[Any, int, list[Any]]]) -> Any:
        items, inputs = list(self._made), []
        for n, inner in self.holes:
            items[n] = next(pointers) if inner is None else inner._again(pointers, held)
        for x in items:
            if x.__class__ is _TENSOR:
                inputs.append(x)
            elif x is not None:
                inputs += held[id(x)][2]
        made = self._made.__class__(*items)
        held[id(made)] = (made, self._form, inputs)
        return made
