"""The launches of a plan: each takes its arguments from one list of values by their numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify_kernels.plan_key import NoPlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

Taken = Callable[[list[Any]], Any]
"""Of the list of values."""
_STREAM = 0


class PlannedLaunch(NamedTuple):
    """One launch: `arguments` takes those of the launcher from the values of a call."""

    kernel: Any
    compiled: Any
    arguments: Taken


class Values:
    """The list that the arguments of launches are taken from: the stream, tensors, their addresses, and `rest`.

    Attributes:
        rest: what is equal in every call; None where a step puts what follows from values before it.
        steps: the number of such a value, and what makes it.
        used: the addresses that launches take.
    """

    def __init__(self, addresses: Sequence[int]) -> None:
        self.rest: list[Any] = []
        self.steps: list[tuple[int, Taken]] = []
        self.used: set[int] = set()
        self._count = len(addresses)
        self._numbers = {p: n for n, p in enumerate(addresses)}  # the key says which tensors share an address

    def launch(
        self, kernel: Any, compiled: Any, programs: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PlannedLaunch:
        """The launch of `kernel` with other addresses.

        Raises:
            NoPlanError: an argument is a tensor that is not among the values, or nothing was compiled.
        """
        if not hasattr(compiled, "packed_metadata"):
            raise NoPlanError
        bound = inspect.signature(kernel.fn).bind(*args, **{n: x for n, x in kwargs.items() if n in kernel.arg_names})
        bound.apply_defaults()
        grid = map(self._added, (programs, 1, 1))
        rest = map(self._added, (compiled.function, compiled.packed_metadata, None, None, None))
        numbers = *grid, _STREAM, *rest, *map(self._number, bound.arguments.values())
        return PlannedLaunch(kernel, compiled, itemgetter(*numbers))

    def _number(self, value: Any) -> int:
        """The number of a value that in another call is what `value` is in this one."""
        if isinstance(value, torch.Tensor):
            return 1 + self._count + self._tensor(value)
        if isinstance(value, tuple) and not _constant(value):
            return self._added(None, _record(tuple(map(self._number, value))))
        if hasattr(value, "block_shape"):
            return self._added(None, _descriptor(value, 1 + self._tensor(value.base)))
        return self._added(value)

    def _tensor(self, x: torch.Tensor) -> int:
        if x.data_ptr() not in self._numbers:
            raise NoPlanError
        self.used.add(x.data_ptr())
        return self._numbers[x.data_ptr()]

    def _added(self, value: Any, step: Taken | None = None) -> int:
        number = 1 + 2 * self._count + len(self.rest)
        self.rest.append(value)
        if step is not None:
            self.steps.append((number, step))
        return number


def _constant(value: Any) -> bool:
    """Whether no address is part of `value`."""
    if isinstance(value, tuple):
        return all(map(_constant, value))
    return not isinstance(value, torch.Tensor) and not hasattr(value, "block_shape")


def _record(numbers: tuple[int, ...]) -> Taken:
    if len(numbers) == 1:  # for which `itemgetter` makes no tuple
        return lambda values: (values[numbers[0]],)
    return itemgetter(*numbers)


def _descriptor(like: Any, base: int) -> Taken:
    """Makes descriptors like one that was checked, of a tensor of equal shape, strides, dtype and alignment.

    What they share belongs to a class of their own, so that one is made in a tenth of the time.
    """
    kind = type(like)
    shared = type(kind.__name__, (kind,), {name: x for name, x in vars(like).items() if name != "base"})

    def made(values: list[Any]) -> Any:
        found: Any = object.__new__(shared)
        found.base = values[base]
        return found

    return made
