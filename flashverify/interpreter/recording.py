"""Recording the builder operations of one call: which it makes, on what, and what of them it gives back."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from flashverify.interpreter.decided import value_of
from flashverify.interpreter.formats import simple_cast
from flashverify.interpreter.hooks import InterpreterBuilder, TensorHandle, tl
from flashverify.interpreter.layer import Layer
from flashverify.interpreter.lockstep import Lockstep
from flashverify.interpreter.memory import inner_place
from flashverify.interpreter.numerics import Numerics
from flashverify.interpreter.steps import Constant, Slot, Step

__all__ = ["CASTS", "Recorder", "Recording", "unobserved"]

_FOLDED = 1 << 12
"""Elements of a constant that is kept instead of being made anew."""
_FOLDABLE = ("create_splat", "create_make_range", "create_expand_dims", "create_broadcast", "create_reshape")
CASTS = ("create_int_cast", "create_fp_ext", "create_fp_trunc", "create_si_to_fp", "create_ui_to_fp")
"""Conversions that NumPy does alike where `simple_cast` says so."""
_OWNERS: dict[str, type] = {
    **dict.fromkeys(("binary_op", "unary_op", "cast_impl", "create_addptr"), Numerics),
    **dict.fromkeys((*_FOLDABLE, "create_select"), Lockstep),
    **dict.fromkeys(CASTS, InterpreterBuilder),
}
_PLAIN = (int, float, str, type(None), tl.core.dtype)
_PLACED = {"create_load", "create_store", "create_masked_load", "create_masked_store"}
"""Operations that a mixin may report with their line."""


@dataclass(slots=True)
class Recording:
    """What was recorded of a call.

    Attributes:
        inputs: the tensors that it gets.
        plain: see `unobserved`.
        placed: whether the lines of its operations are lost at a replay: it runs code of its own.
        steps: in order.
        shapes: of the tiles of the slots.
        opaque: whether it did something that cannot be repeated from the types and constants alone.
        elements: of the largest tile among those whose size is limited.
        decided: numbers of the inputs by whose value it decided.
    """

    inputs: list[Any]
    plain: bool
    placed: bool
    steps: list[Step] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    opaque: bool = False
    elements: int = 0
    decided: set[int] = field(default_factory=set)
    _known: dict[int, Any] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        for tensor in self.inputs:
            self._fill(tensor.handle)

    def _fill(self, held: Any) -> int:
        self._alive.append(held)  # an identity is only unique while its object lives
        number = len(self.shapes)
        self._known[id(held)] = Slot(number)
        self.shapes.append(held.data.shape[1:])
        return number

    def alias(self, own: Any, copied: Any) -> None:
        """Take one handle for another."""
        known = self._known.get(id(own))
        if known is not None:
            self._known[id(copied)] = known
            self._alive.append(copied)

    def adopt(self, held: Any) -> None:
        """Know the handle of a constant."""
        self._known[id(held)] = Constant(held)
        self._alive.append(held)

    def source(self, value: Any) -> Any:
        """`Slot` or `Constant` of an operand; None where it came from elsewhere."""
        if isinstance(value, TensorHandle):
            return self._known.get(id(value))
        if isinstance(value, (list, tuple, tl.core.tuple)):
            fixed = all(isinstance(x, _PLAIN) or x.__class__ is tl.core.constexpr for x in value)
            return Constant(value[:] if isinstance(value, list) else value) if fixed else None
        return Constant(value) if isinstance(value, _PLAIN) or type(value).__module__.endswith("libtriton.ir") else None

    def note(self, name: str, args: Any, kwargs: Any, out: Any, ufunc: Any) -> None:
        """Take in one operation."""
        sources = [self.source(x) for x in args]
        named = {key: self.source(x) for key, x in kwargs.items()}
        outs = out if isinstance(out, tuple) else (out,)
        if any(x is None for x in (*sources, *named.values())):
            self.opaque = True
            return
        held = [x for x in outs if isinstance(x, TensorHandle)]
        fixed = all(isinstance(x, Constant) for x in (*sources, *named.values()))
        if name.startswith("get_") or (fixed and self.plain and name in _FOLDABLE and _small(held)):
            self.opaque |= not fixed
            for x in held:
                x.data.flags.writeable = False
                self.adopt(x)
                self.elements = max(self.elements, _limited(name, x))
            return
        if len(held) != len(outs) and out is not None:
            self.opaque = True
            return
        self.elements = max([self.elements, *(_limited(name, x) for x in held)])
        numbers = [self._fill(x) for x in held]
        step = Step(name, sources, named, numbers, isinstance(out, tuple), ufunc)
        if self.placed and name in _PLACED:
            step.place = inner_place()
        if name == "create_addptr":
            step.size = max(1, args[0].get_element_ty().primitive_bitwidth // 8)
            step.settled = args[1].data.dtype.itemsize == 8
        elif len(held) == 1 and isinstance(args[0], TensorHandle):
            before, after = args[0].data.dtype, held[0].data.dtype
            step.astype = simple_cast(before, after)
            step.settled = after in (before, bool) if ufunc is not None else after == before
        self.steps.append(step)
        self._alive += [*args, *kwargs.values()]

    def decide(self, held: Any) -> None:
        """Take in that the call decides by the value of a handle."""
        self._decide(self._known.get(id(held)), held)

    def _decide(self, source: Any, held: Any) -> None:
        if not isinstance(source, Constant):
            if isinstance(source, Slot) and source.number < len(self.inputs) and value_of(held) is not None:
                self.decided.add(source.number)
            else:
                self.opaque = True

    def splice(self, inner: Recording, given: list[Any], made: list[tuple[Any, Any]]) -> None:
        """Take in the operations of a call that was replayed.

        Args:
            inner: its recording.
            given: handles of its inputs.
            made: the handles that it gave back, each with its `Slot` or `Constant`.
        """
        sources = [self._known.get(id(held)) for held in given]
        first, inputs = len(self.shapes), len(given)
        for number in inner.decided:
            self._decide(sources[number], given[number])

        slots = [*sources, *map(Slot, range(first, first + len(inner.shapes) - inputs))]
        complete = all(source is not None for source in sources)

        def moved(source: Any) -> Any:
            return slots[source.number] if source.__class__ is Slot else source

        self.shapes += inner.shapes[inputs:]
        self.elements = max(self.elements, inner.elements)
        for step in inner.steps:
            args = [slots[x.number] if x.__class__ is Slot else x for x in step.args]
            kwargs = {name: moved(x) for name, x in step.kwargs.items()} if step.kwargs else step.kwargs
            if not complete:
                self.opaque |= any(x is None for x in (*args, *kwargs.values()))
            outs = [first + number - inputs for number in step.outs]
            place = (step.place or inner_place()) if self.placed and step.name in _PLACED else None
            rest = (step.several, step.ufunc, place, step.size, step.astype, step.settled)
            self.steps.append(Step(step.name, args, kwargs, outs, *rest))
        for source, held in made:
            self._known[id(held)] = moved(source)
            self._alive.append(held)


_unobserved: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()
"""By class. Every extension of a session makes a class of its own, which ends with it and takes its tapes along."""


def unobserved(kind: type) -> bool:
    """Whether simple operations of a builder are this package's own: no mixin sees them, so that they may be done otherwise."""
    found = _unobserved.get(kind)
    if found is None:
        found = all(getattr(kind, name) is getattr(owner, name) for name, owner in _OWNERS.items())
        _unobserved[kind] = found
    return found


def _small(held: list[Any]) -> bool:
    return len(held) == 1 and held[0].data.size <= _FOLDED


def _limited(name: str, held: Any) -> int:
    size: int = held.data[0].size if name in ("create_splat", "create_broadcast") else 0
    return size


class Recorder(Layer):
    """The outermost mixin while calls are recorded."""

    _nested: bool = False
    _applied: Any = None

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        """Note the function that is applied."""
        out = super().binary_op(lhs, rhs, op)
        self._applied = (op, (lhs, rhs), out)
        return out

    def unary_op(self, arg: Any, op: Any) -> Any:
        """Note the function that is applied."""
        out = super().unary_op(arg, op)
        self._applied = (op, (arg,), out)
        return out


def _recorded(name: str) -> Any:
    stocks = getattr(InterpreterBuilder, name, None)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = getattr(super(Recorder, self), name)
        if self._nested:
            return inner(*args, **kwargs)
        self._nested, self._applied = True, None
        try:
            out = inner(*args, **kwargs)
        finally:
            self._nested = False
        ufunc = None
        if self._applied is not None and inner.__func__ is stocks and not kwargs:
            op, operands, made = self._applied
            if made is out and len(operands) == len(args) and all(x is y for x, y in zip(operands, args, strict=True)):
                ufunc = op
        for recording in self.recordings:
            recording.note(name, args, kwargs, out, ufunc)
        return out

    return method


for _name in {*dir(InterpreterBuilder), "create_reduction", "create_arg_reduction", "create_prefix", "get_bf16"}:
    if _name.startswith(("create_", "get_")):
        setattr(Recorder, _name, _recorded(_name))
