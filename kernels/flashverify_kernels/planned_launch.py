"""One launch of a plan: its arguments, and how those that hold addresses follow from the tensors of a call."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class PlannedLaunch(NamedTuple):
    """One launch: `fills` are the arguments that depend on addresses, by number."""

    kernel: Any
    compiled: Any
    programs: int
    arguments: list[Any]
    fills: tuple[tuple[int, Callable[..., Any]], ...]


class Numbers(dict[int, int]):
    """The tensors by address, and the addresses that launches read or write."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int] = set()


class NoPlanError(Exception):
    """A launch reads a tensor that is neither given nor returned."""


def planned_launch(
    numbers: Numbers, kernel: Any, compiled: Any, programs: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> PlannedLaunch:
    """The launch of `kernel` with other addresses.

    Raises:
        NoPlanError: an argument is a tensor that `numbers` does not have, or nothing was compiled.
    """
    if not hasattr(compiled, "packed_metadata"):
        raise NoPlanError
    bound = inspect.signature(kernel.fn).bind(*args, **{n: x for n, x in kwargs.items() if n in kernel.arg_names})
    bound.apply_defaults()
    filled = [(x, _fill(x, numbers)) for x in bound.arguments.values()]
    return PlannedLaunch(
        kernel,
        compiled,
        programs,
        [x if fill is None else None for x, fill in filled],
        tuple((n, fill) for n, (_, fill) in enumerate(filled) if fill is not None),
    )


def _fill(value: Any, numbers: Numbers) -> Callable[..., Any] | None:
    """How an argument follows from the tensors and their addresses; None for one that does not."""
    if isinstance(value, torch.Tensor):
        at = _number(value, numbers)
        return lambda _tensors, pointers: pointers[at]
    if isinstance(value, tuple):
        parts = list(enumerate(_fill(x, numbers) for x in value))
        fills = [(n, fill) for n, fill in parts if fill is not None]
        rest = [x if fill is None else None for x, (_, fill) in zip(value, parts, strict=True)]
        return _record_of(rest, fills) if fills else None
    if hasattr(value, "block_shape"):
        at, kind = _number(value.base, numbers), type(value)
        fields = {name: x for name, x in vars(value).items() if name != "base"}
        return lambda tensors, _pointers: _descriptor(kind, fields, tensors[at])
    return None


def _number(x: torch.Tensor, numbers: Numbers) -> int:
    if x.data_ptr() not in numbers:
        raise NoPlanError
    numbers.used.add(x.data_ptr())
    return numbers[x.data_ptr()]


def _record_of(rest: list[Any], fills: list[tuple[int, Callable[..., Any]]]) -> Callable[..., Any]:
    def fill(tensors: list[torch.Tensor], pointers: list[int]) -> tuple[Any, ...]:
        found = rest.copy()
        for n, part in fills:
            found[n] = part(tensors, pointers)
        return tuple(found)

    return fill


def _descriptor(kind: type, fields: dict[str, Any], base: torch.Tensor) -> Any:
    """A descriptor like one that was checked, of a tensor of equal shape, strides, dtype and alignment."""
    found: Any = object.__new__(kind)
    found.__dict__.update(fields, base=base)
    return found
