"""The launches of a plan: each takes its arguments from one list of values by their numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify_kernels.launchers import Place, flat, launcher_of
from flashverify_kernels.plan_key import NoPlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

Taken = Callable[[list[Any]], Any]
"""Of the list of values."""
_STREAM = 0


class PlannedLaunch(NamedTuple):
    """One launch: `arguments` takes those of `launch` from the values of a call."""

    kernel: Any
    compiled: Any
    launch: Callable[..., Any]
    arguments: Taken


class Values:
    """The list that the arguments of launches are taken from: the stream, the addresses of tensors, and `rest`.

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
            NoPlanError: an argument is a tensor that is not among the values, nothing was compiled, or the launcher takes other arguments.
        """
        if not hasattr(compiled, "packed_metadata"):
            raise NoPlanError
        launcher = launcher_of(compiled)
        bound = inspect.signature(kernel.fn).bind(*args, **{n: x for n, x in kwargs.items() if n in kernel.arg_names})
        bound.apply_defaults()
        before = (*map(self._added, (programs, 1, 1)), _STREAM, *map(self._added, launcher.before))
        numbers, descriptors = [], 0
        for n, value in enumerate(bound.arguments.values()):
            if hasattr(value, "block_shape") and launcher.expanded is not None:
                numbers += self._descriptor(*launcher.expanded(value, descriptors), value.base)
                descriptors += 1
            elif launcher.types is not None:
                numbers += map(self._number, flat(value, launcher.types[n]))
            else:
                numbers.append(self._number(value))
        if launcher.types is not None:
            if len(numbers) != launcher.single:
                raise NoPlanError
            numbers = [self._added(None, _record(tuple(numbers)))]
        return PlannedLaunch(kernel, compiled, launcher.call, itemgetter(*before, *numbers))

    def _number(self, value: Any) -> int:
        """The number of a value that in another call is what `value` is in this one; an address in place of a tensor."""
        if isinstance(value, torch.Tensor):
            return 1 + self._tensor(value)
        if isinstance(value, tuple) and not _constant(value):
            return self._added(None, _record(tuple(map(self._number, value))))
        if hasattr(value, "block_shape"):
            base, made = 1 + self._tensor(value.base), _moved(value)
            return self._added(None, lambda values: made(values[base]))
        return self._added(value)

    def _descriptor(self, made: Callable[[int], Any] | None, rest: list[Any], base: torch.Tensor) -> list[int]:
        """The numbers of what a launcher takes for a descriptor of `base`, see `Launcher.expanded`."""
        number = 1 + self._tensor(base)
        first = number if made is None else self._added(None, lambda values: made(values[number]))
        return [first, *map(self._added, rest)]

    def _tensor(self, x: torch.Tensor) -> int:
        if x.data_ptr() not in self._numbers:
            raise NoPlanError
        self.used.add(x.data_ptr())
        return self._numbers[x.data_ptr()]

    def _added(self, value: Any, step: Taken | None = None) -> int:
        number = 1 + self._count + len(self.rest)
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


def _moved(like: Any) -> Callable[[int], Any]:
    """Makes descriptors like one that was checked, of a tensor of equal shape, strides, dtype and alignment at another address.

    What they share belongs to a class of their own, so that one is made in a tenth of the time and none keeps a tensor.
    """
    kind = type(like)
    shared = type(kind.__name__, (kind,), {name: x for name, x in vars(like).items() if name != "base"})

    def made(address: int) -> Any:
        found: Any = object.__new__(shared)
        found.base = Place(address)
        return found

    return made
