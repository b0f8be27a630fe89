"""Where NaN and infinities are made: a mixin that looks at the result of every float operation, on demand."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flashverify.errors import UsageError
from flashverify.formats import FORMATS
from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.formats import is_float
from flashverify.interpreter.hooks import InterpreterBuilder
from flashverify.interpreter.memory import Place, Tagged, place, program_of
from flashverify.interpreter.session import active

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Event", "NonFinite", "Trace", "trace"]

_ELEMENTWISE = """
fadd fsub fmul fdiv frem precise_divf approx_divf fma exp exp2 log log2 sin cos erf sqrt precise_sqrt rsqrt
fp_trunc fp_to_fp si_to_fp ui_to_fp
""".split()  # noqa: SIM905
_UNDERFLOW = {"fmul", "fdiv", "precise_divf", "approx_divf", "fma", "exp", "exp2", "fp_trunc", "fp_to_fp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The first time that a line made something special out of ordinary values.

    Attributes:
        kind: `invalid`, NaN without a NaN operand; `overflow`, an infinity out of finite operands, a division by 0 too;
            `loaded`, NaN that came from memory.
        operation: its name.
        kernel: name of the kernel.
        place: line of the source.
        program: program ids.
        lane: index in the tile.
        operands: their values there; of a product the largest magnitudes of its row and column, and the addend; of a
            reduction the smallest and the largest operand.
        result: what came of them.
    """

    kind: Literal["invalid", "overflow", "loaded"]
    operation: str
    kernel: str
    place: Place
    program: tuple[int, int, int]
    lane: tuple[int, ...]
    operands: tuple[float, ...]
    result: float

    def __str__(self) -> str:
        operands = ", ".join(f"{x:.9g}" for x in self.operands)
        made = f"{self.operation}({operands}) = {self.result:.9g}"
        return f"{self.place}: {self.kernel}: {made} in program {self.program}, lane {list(self.lane)}"


@dataclass(slots=True)
class Trace:
    """What was seen.

    Attributes:
        events: in the order in which they happened, that of lockstep; one per kind and line.
        counts: lanes by (file, line, kind), with the kind `underflow`: 0 or a subnormal number out of numbers that are not 0.
    """

    events: dict[tuple[str, int, str], Event] = field(default_factory=dict)
    counts: Counter[tuple[str, int, str]] = field(default_factory=Counter)

    @property
    def first(self) -> Event | None:
        """The first event."""
        return next(iter(self.events.values()), None)


class NonFinite(Tagged):
    """Fills the trace of `trace`. Infinities that enter as constants, as masks do, are no events."""

    traces = True
    traced: Trace
    _trace_before: tuple[dict[Any, Event], Counter[Any]]

    def on_attempt(self) -> None:
        """Note where to go back to."""
        super().on_attempt()
        self._trace_before = (dict(self.traced.events), self.traced.counts.copy())

    def on_undo(self) -> None:
        """The attempt is made again."""
        super().on_undo()
        self.traced.events, self.traced.counts = dict(self._trace_before[0]), self._trace_before[1].copy()

    def create_masked_load(self, *args: Any, **options: Any) -> Any:
        """Look for NaN in memory."""
        out = super().create_masked_load(*args, **options)
        if is_float(out.data.dtype):
            self._event("loaded", "load", np.isnan(out.data), lambda _lane: (), out.data)
        return out

    def create_dot(self, a: Any, b: Any, d: Any, *rest: Any, **options: Any) -> Any:
        """Look at a product, by rows and columns."""
        out = super().create_dot(a, b, d, *rest, **options)
        if is_float(a.data.dtype) and not np.isfinite(out.data).all():
            x, y, z = a.data, b.data, d.data

            def spread(test: Any) -> Any:
                return test(x).any(-1)[..., :, None] | test(y).any(-2)[..., None, :] | test(z)

            def operands(lane: Any) -> tuple[float, ...]:
                row, column = (
                    _at(np.abs(v).max(axis), lane) for v, axis in ((x[..., :, None, :], -1), (y[..., None, :, :], -2))
                )
                return row, column, _at(z, lane)

            self._special("dot", spread(np.isnan), spread(lambda v: ~np.isfinite(v)), operands, out.data)
        return out

    def create_reduction(self, src: Any, kind: str, axis: int | None, keep_dims: bool) -> Any:
        """Look at a sum."""
        out = super().create_reduction(src, kind, axis, keep_dims)
        if kind == "sum" and is_float(src.data.dtype) and not np.isfinite(out.data).all():
            x = src.data

            def over(test: Any) -> Any:
                return test.any(axis=axis, keepdims=keep_dims).reshape(out.data.shape)

            def operands(lane: Any) -> tuple[float, ...]:
                low, high = (f(x, axis=axis, keepdims=keep_dims).reshape(out.data.shape) for f in (np.min, np.max))
                return float(low[lane]), float(high[lane])

            self._special("sum", over(np.isnan(x)), over(~np.isfinite(x)), operands, out.data)
        return out

    # --- bookkeeping ------------------------------------------------------------------------------------------------

    def _elementwise(self, name: str, operands: list[Any], out: Any) -> None:
        if not is_float(out.dtype):
            return
        floats = [x for x in operands if is_float(x.dtype)]

        def values(lane: Any) -> tuple[float, ...]:
            return tuple(_at(x, lane) for x in operands)

        if not np.isfinite(out).all():
            nan, special = np.zeros((), bool), np.zeros((), bool)
            for x in floats:
                nan, special = nan | np.isnan(x), special | ~np.isfinite(x)
            self._special(name, nan, special, values, out)
        if name in _UNDERFLOW:
            small = np.abs(out) < _smallest(out.dtype)
            for x in floats:
                small = small & np.isfinite(x) & ((x != 0) | (name in ("exp", "exp2")))
            if small.any():
                where = place(self.launch)
                self.traced.counts[where.file, where.line, "underflow"] += int(small.sum())

    def _special(self, name: str, nan: Any, special: Any, operands: Any, out: Any) -> None:
        """Report what is special in `out` though the operands were not: `nan` and `special` broadcast to it."""
        self._event("invalid", name, np.isnan(out) & ~nan, operands, out)
        self._event("overflow", name, np.isinf(out) & ~special, operands, out)

    def _event(self, kind: Any, name: str, bad: Any, operands: Any, out: Any) -> None:
        if not bad.any():
            return
        where = place(self.launch)
        key = (where.file, where.line, kind)
        self.traced.counts[key] += int(count_nonzero(bad))
        if key in self.traced.events:
            return
        lane = tuple(int(i) for i in np.unravel_index(bad.argmax(), bad.shape))
        row = lane[0] if self.lockstep and out.shape[0] == len(self.programs) else 0
        self.traced.events[key] = Event(
            kind=kind,
            operation=name,
            kernel=self.launch.name,
            place=where,
            program=program_of(self.launch, int(self.programs[row])),
            lane=lane[1:] if self.lockstep else lane,
            operands=operands(lane),
            result=float(out[lane]),
        )


def _at(x: Any, lane: tuple[int, ...]) -> float:
    """The value at a lane of an array that broadcasts to the lane's."""
    place_in = lane[len(lane) - x.ndim :]
    return float(x[tuple(0 if size == 1 else i for i, size in zip(place_in, x.shape, strict=True))])


_MIN_NORMAL = {entry.library: entry.min_normal for entry in FORMATS.values()}


def _smallest(dtype: np.dtype[Any]) -> float:
    """The smallest normal number; that of fp32 for a format that the table does not have."""
    return _MIN_NORMAL.get(dtype.name, FORMATS["fp32"].min_normal)


def _looking(name: str) -> Any:
    def looked(self: Any, *args: Any, **options: Any) -> Any:
        out = getattr(super(NonFinite, self), f"create_{name}")(*args, **options)
        operands = [x.data for x in args if isinstance(getattr(x, "data", None), np.ndarray)]
        self._elementwise(name, operands, out.data)
        return out

    return looked


for _name in _ELEMENTWISE:
    if hasattr(InterpreterBuilder, f"create_{_name}"):
        setattr(NonFinite, f"create_{_name}", _looking(_name))


@contextlib.contextmanager
def trace() -> Iterator[Trace]:
    """Trace the launches of the block, in the open session.

    Raises:
        UsageError: no session is open.
    """
    opened = active()
    if opened is None:
        raise UsageError("a trace needs an open session")
    with opened.extended(NonFinite):
        found = opened.builder.traced = Trace()
        yield found
