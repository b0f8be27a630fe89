"""Addresses that are 2^32 elements short: an offset that did not fit 32 bits; and the integer arithmetic that lost it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.errors import UsageError
from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.memory import Place, Tagged, place, program_of
from flashverify.interpreter.session import active

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.interpreter.memory import Argument

__all__ = ["Loss", "Wrap", "Wraps", "losses"]

_TURN = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrap:
    """An access 2^32 elements before an element of its tensor, the first one of a line and an argument.

    Attributes:
        access: `load`, `store` or `atomic`.
        kernel: name of the kernel.
        argument: name of its parameter.
        place: line of the access.
        program: program ids of the first such lane.
        index: logical index of the element that was meant.
        offset: its distance from the first element of the tensor, elements: 2^31 or more.
        lanes: how many lanes of the operation are concerned.
    """

    access: str
    kernel: str
    argument: str
    place: Place
    program: tuple[int, int, int]
    index: tuple[int, ...]
    offset: int
    lanes: int

    def __str__(self) -> str:
        where = f"{self.place}: {self.kernel}: {self.access} of {self.argument}{list(self.index)}"
        return (
            f"{where} in program {self.program}: the element lies {self.offset} elements from the first one, "
            f"the address {self.offset - _TURN} ({self.lanes} lanes)"
        )


@dataclass(slots=True)
class Wraps:
    """What a watch found of them.

    Attributes:
        found: by (place, argument).
        strays: other accesses outside the elements of an input: the kernel does not follow the strides that it is given.
        own_strays: the same of what the subject allocated.
    """

    found: dict[tuple[Place, str], Wrap] = field(default_factory=dict)
    strays: int = 0
    own_strays: int = 0

    def look(self, builder: Any, access: str, argument: Argument, at: Any, strange: Any) -> None:
        """Tells apart the lanes of an access that lie outside a tensor.

        Args:
            builder: the session's, with the launch and its programs.
            access: see `Wrap`.
            argument: the tensor.
            at: addresses.
            strange: which lanes lie outside.
        """
        meant = at + np.uint64(_TURN << argument.shift)
        outside = argument.strange(argument.places(meant))
        wrapped = strange if outside is None else strange & ~outside
        count = int(count_nonzero(wrapped))
        if count < int(count_nonzero(strange)):
            is_input = argument.tensor.untyped_storage().data_ptr() in builder.watched.inputs
            self.strays, self.own_strays = self.strays + is_input, self.own_strays + (not is_input)
        where = place(builder.launch)
        if not count or (where, argument.name) in self.found:
            return
        first, programs = int(wrapped.argmax()), builder.programs
        row = first * wrapped.shape[0] // wrapped.size if wrapped.ndim and wrapped.shape[0] == len(programs) else 0
        address = int(meant.flat[first])
        self.found[where, argument.name] = Wrap(
            access=access,
            kernel=builder.launch.name,
            argument=argument.name,
            place=where,
            program=program_of(builder.launch, int(programs[row])),
            index=argument.index(address),
            offset=argument.element(address),
            lanes=count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """An integer operation whose exact result does not fit its type, the first one of a line.

    Attributes:
        kernel: name of the kernel.
        place: line of the source.
        operation: `+`, `-`, `*`, `<<` or `cast`.
        operands: of the first lane; of a cast the value.
        exact: the exact result.
        result: what is left of it in the type.
        dtype: the type, `int32`.
    """

    kernel: str
    place: Place
    operation: str
    operands: tuple[int, ...]
    exact: int
    result: int
    dtype: str

    def __str__(self) -> str:
        if self.operation == "cast":
            return f"{self.place}: {self.exact} becomes {self.result} in a cast to {self.dtype}"
        text = f" {self.operation} ".join(map(str, self.operands))
        return f"{self.place}: {text} = {self.exact} becomes {self.result} in {self.dtype}"


class Narrow(Tagged):
    """Compares signed 32-bit integer arithmetic with 64-bit arithmetic; see `losses`."""

    traces = True
    lost: dict[tuple[Place, str], Loss]

    def create_int_cast(self, src: Any, *rest: Any, **options: Any) -> Any:
        """Look at a narrowing cast."""
        out = super().create_int_cast(src, *rest, **options)
        if out.data.dtype == np.int32 and src.data.dtype in (np.int64, np.uint64):
            self._compare("cast", (src.data,), src.data.astype(np.int64), out.data)
        return out

    def _compare(self, operation: str, operands: tuple[Any, ...], exact: Any, out: Any) -> None:
        bad = (exact != out) & (exact >= 1 << 31) & (exact < _TURN)
        if not bad.any():
            return
        where = place(self.launch)
        if (where, operation) not in self.lost:
            first = int(bad.argmax())
            self.lost[where, operation] = Loss(
                kernel=self.launch.name,
                place=where,
                operation=operation,
                operands=tuple(int(np.broadcast_to(x, bad.shape).flat[first]) for x in operands),
                exact=int(exact.flat[first]),
                result=int(out.flat[first]),
                dtype=out.dtype.name,
            )


_WIDE = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "shl": np.left_shift}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "shl": "<<"}


def _looking(name: str) -> Any:
    wide, sign = _WIDE[name], _SIGNS[name]

    def looked(self: Any, lhs: Any, rhs: Any, *rest: Any, **options: Any) -> Any:
        out = getattr(super(Narrow, self), f"create_{name}")(lhs, rhs, *rest, **options)
        if out.data.dtype == np.int32:
            operands = (lhs.data, rhs.data)
            self._compare(sign, operands, wide(*(x.astype(np.int64) for x in operands)), out.data)
        return out

    return looked


for _name in _WIDE:
    setattr(Narrow, f"create_{_name}", _looking(_name))


@contextlib.contextmanager
def losses() -> Iterator[dict[tuple[Place, str], Loss]]:
    """Collects, in the open session, signed 32-bit results from 2^31 to 2^32 that are lost inside the block, by line and operation.

    Raises:
        UsageError: no session is open.
    """
    opened = active()
    if opened is None:
        raise UsageError("losses of integers need an open session")
    with opened.extended(Narrow):
        found: dict[tuple[Place, str], Loss] = {}
        opened.builder.lost = found
        yield found
