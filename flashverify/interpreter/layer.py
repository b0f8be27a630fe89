"""What every mixin of a session is made of: the events of a launch, and the signals that end an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter.hooks import InterpreterBuilder, tl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Diverged",
    "Launch",
    "Layer",
    "Signal",
    "Together",
    "TooLarge",
    "Unsupported",
    "field_name",
    "fields_of",
    "leaves",
]

_DESCRIPTORS = (TensorDescriptor, getattr(tl.core, "tensor_descriptor", TensorDescriptor))


class Signal(BaseException):
    """Ends an attempt to run programs in lockstep. Not an `Exception`: Triton wraps those at every device function."""


class Diverged(Signal):
    """The programs want to go different ways.

    Attributes:
        values: what each program of the attempt decides by.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values


class TooLarge(Signal):
    """The programs of the attempt do not fit the memory allowed.

    Attributes:
        elements: of the tile that does not fit, per program.
    """

    def __init__(self, elements: int) -> None:
        self.elements = elements


class Unsupported(Signal):
    """Something that is not known to be right in lockstep: the launch goes on one program at a time."""


@dataclass(frozen=True)
class Launch:
    """One launch, as its hooks see it.

    Attributes:
        name: of the kernel.
        filename: where it was defined.
        raw: arguments by name as the caller passed them: tensors, numbers, None, and tuples of them.
        arguments: the same as the kernel gets them. The `handle.dtype` of a pointer among them may be replaced by a
            tagged copy: address arithmetic carries the object along, unchanged, down to `create_masked_load` and `_store`.
        grid: number of programs along each axis.
        tensors: those in `raw`, named as `leaves` has them, each with the handle that the kernel gets for it.
    """

    name: str
    filename: str
    raw: dict[str, Any]
    arguments: dict[str, Any]
    grid: tuple[int, int, int]
    tensors: tuple[tuple[str, Any, Any], ...]


def leaves(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the arguments of a launch hold, by name, in order.

    A tuple holds what its fields hold, named `tuple.field` (`tuple.0` without names); a tensor in a field `ptr` has the name of
    the tuple: the other fields describe it. A tensor descriptor holds its tensor, likewise.
    """
    for name, value in arguments.items():
        if isinstance(value, tuple):
            yield from leaves({field_name(name, field): x for field, x in fields_of(value)})
        else:
            yield name, value.base if isinstance(value, _DESCRIPTORS) else value


def fields_of(value: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """The fields of a tuple, by name or number."""
    yield from zip(getattr(value, "_fields", map(str, range(len(value)))), value, strict=True)


def field_name(name: str, field: str) -> str:
    """The name of a field of the argument `name`."""
    return name if field == "ptr" else f"{name}.{field}"


class Together:
    """A loop that all programs walk alike.

    Attributes:
        turn: whether `narrow` is due.
        parted: whether `widen` is.
    """

    turn = parted = False

    def __init__(self, walked: Any) -> None:
        self._walked = walked

    def __iter__(self) -> Iterator[Any]:
        return iter(self._walked)


class Layer(InterpreterBuilder):  # type: ignore[misc]
    """A cooperative mixin over the builder: override `create_*`, call super.

    Below the lockstep layer every array of an operation has a leading axis over programs, of length 1 where all programs
    agree, except when `lockstep` is False: then a program runs alone and arrays have the shape of the tile. Loads and
    stores always arrive with pointers, mask and value (or `other`, unless None) of one shape.

    Attributes:
        traces: whether a mixin looks at every operation, and not only at those on memory.
        tapes: calls that can be replayed, by what they depend on; None where nothing is.
        recordings: of the calls that are being recorded, outermost first.
        within: the `Lanes` of the load or store, where a mixin has found that every one belongs to a tensor.
        lockstep: whether arrays have the leading axis.
        programs: flat numbers of the programs that run now, along the leading axis; program (x, y, z) of a grid
            (X, Y, Z) is number (x * Y + y) * Z + z.
        active: the places of `programs` among those of the attempt, where others wait behind a loop; else None.
        journal: what takes the stores of the attempt back, oldest first; None where nothing will be taken back.
    """

    traces = False
    tapes: dict[Any, Any] | None = None
    recordings: Any = ()
    within: Any = None
    lockstep = False
    programs: NDArray[np.int64]
    active: Any = None
    journal: list[Callable[[], None]] | None = None

    def on_open(self) -> None:
        """The session begins."""

    def on_launch(self, launch: Launch) -> None:
        """A kernel is about to run."""

    def repeated(self, function: Any, launch: Launch, meanings: int) -> bool:
        """Whether a launch of a kernel, in lockstep, did what it does without being run.

        Args:
            function: the kernel.
            launch: of it.
            meanings: grows whenever a name that kernels use comes to mean something else.
        """
        del function, launch, meanings
        return False

    def on_attempt(self) -> None:
        """`programs` begin to run. Called again where a group of them is split or repeated alone."""

    def effect(self) -> None:
        """The launch does something besides loads and stores."""

    def on_undo(self) -> None:
        """The stores of the attempt were taken back."""

    def loop(self, carried: Any, read: Any, callee: Any, *args: Any, **named: Any) -> Any:
        """What a kernel walks in place of a range, see `loop_code`.

        Args:
            carried: names that the body assigns to and whose values are needed after a turn.
            read: names that it reads alone.
            callee: what makes the range.
            args: of it.
            named: likewise.
        """
        del carried, read
        return Together(callee(*args, **named))

    def on_finish(self, launch: Launch) -> None:
        """Every program of the launch has run."""
