"""Calls that are recorded once and replayed: of Triton's language, and of the device functions of kernels.

Which operations a call makes depends on the types of its tensors and on its constants alone, unless it decides by the value
of a tensor. Where that is a scalar that it is given, it is replayed for the same value; any other such call never is. Only programs
in lockstep are; one at a time they run as Triton has it.
"""

from __future__ import annotations

import operator
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.blocks import Descriptor
from flashverify.interpreter.decided import Decided
from flashverify.interpreter.hooks import builder, handle, stock, tl
from flashverify.interpreter.keys import key_of, named_tuple
from flashverify.interpreter.recording import Recorder, Recording, unobserved
from flashverify.interpreter.replay import OpaqueError, Tape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Globals", "builtins", "replayed", "replayed_function"]

_OPERATORS = """
add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod neg invert and rand or ror xor rxor lshift rlshift rshift
rrshift gt rgt ge rge lt rlt le rle eq req ne rne getitem not
""".split()  # noqa: SIM905
_METHODS = "to cast logical_and logical_or reshape view expand_dims broadcast_to trans permute".split()  # noqa: SIM905
_FUNCTIONS = """
program_id num_programs arange full cat join split trans permute reshape view expand_dims broadcast broadcast_to cast dot load
store where add sub mul minimum maximum clamp abs exp exp2 log log2 sqrt sqrt_rn rsqrt sin cos erf floor ceil fma fdiv div_rn
umulhi gather multiple_of max_contiguous max_constancy
""".split()  # noqa: SIM905
_ROOM = 1 << 15
"""Calls that are known: those that a search meets over and over are some 6,000, of about 20 kB each."""
_recorders: dict[type, type] = {}


class Globals:
    """Names that replayed functions find in their modules: where one means something else, nothing is replayed."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._functions: set[Any] = set()
        self._meant: list[tuple[dict[str, Any], Callable[[dict[str, Any]], Any], tuple[Any, ...]]] = []

    def watch(self, function: Any) -> None:
        """Remember what the names of a function mean now, unless that is known."""
        if function not in self._functions:
            self._functions.add(function)
            self._watch(function.__globals__, function.__code__)
            self._meant = [(names, *_reading(before)) for names, before in self._seen.values()]

    def _watch(self, names: dict[str, Any], code: CodeType) -> None:
        for name in code.co_names:
            meant = names.get(name, self)
            if isinstance(meant, ModuleType):
                if not meant.__name__.startswith("triton"):
                    self._watch(vars(meant), code)
            elif meant is not self:
                self._seen.setdefault(id(names), (names, {}))[1][name] = meant
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._watch(names, inner)

    def changed(self) -> bool:
        """Whether one means something else now; they are forgotten then."""
        for names, meaning_of, before in self._meant:
            try:
                same = all(map(operator.is_, meaning_of(names), before))
            except KeyError:
                same = False
            if not same:
                self._seen.clear()
                self._functions.clear()
                self._meant.clear()
                return True
        return False


def _reading(before: dict[str, Any]) -> tuple[Callable[[dict[str, Any]], Any], tuple[Any, ...]]:
    """What takes the meanings of names as a tuple, and that tuple as it was: the first name comes twice, since of one there is none."""
    first = next(iter(before))
    return operator.itemgetter(first, *before), (before[first], *before.values())


def _recorder(kind: type) -> type:
    found = _recorders.get(kind)
    if found is None:
        _recorders.clear()
        found = _recorders[kind] = type("RecordingBuilder", (Recorder, kind), {})
    return found


def _copies(values: Any, inputs: list[Any], own: list[Any]) -> Any:
    """The arguments with a new tensor and handle in place of each tensor, so that each is told from all others."""
    if values.__class__ is tl.core.tensor:
        own.append(values)
        made = object.__new__(tl.core.tensor)
        made.__dict__.update(values.__dict__)
        made.handle = handle(values.handle.data, values.handle.dtype)
        inputs.append(made)
        return made
    if values.__class__ in (tuple, list):
        return type(values)(_copies(x, inputs, own) for x in values)
    if named_tuple(values.__class__):
        return values.__class__(*(_copies(x, inputs, own) for x in values))
    if values.__class__ is tl.core.tuple:
        return tl.core.tuple([_copies(x, inputs, own) for x in values.values], values.type)
    if values.__class__ is Descriptor:
        return values.over([_copies(x, inputs, own) for x in values.tensors])
    return values


def _record(b: Any, key: Any, call: Any, args: Any, kwargs: dict[str, Any], *, placed: bool) -> Any:
    """Make the call, and keep how to repeat it."""
    inputs: list[Any] = []
    own: list[Any] = []
    args = _copies(args, inputs, own)
    kwargs = {name: _copies(value, inputs, own) for name, value in kwargs.items()}
    kind = b.__class__
    inside = isinstance(b, Recorder)
    recording = Recording(inputs, unobserved(kind.__bases__[1] if inside else kind), placed)
    if inside:
        for outer in b.recordings:
            for tensor, copied in zip(own, inputs, strict=True):
                outer.alias(tensor.handle, copied.handle)
        b.recordings.append(recording)
    else:
        b.__class__, b.recordings = _recorder(kind), [recording]
    try:
        result = call(*args, **kwargs)
    finally:
        b.recordings.pop()
        if not inside:
            b.__class__ = kind
    tapes = b.tapes
    if len(tapes) >= _ROOM:
        tapes.clear()
    try:
        if recording.opaque:
            raise OpaqueError
        _keep(tapes, key, Tape(recording, result), tuple(sorted(recording.decided)), own)
    except OpaqueError:
        tapes[key] = None
    return _returned(result, inputs, own)


def _keep(tapes: dict[Any, Any], key: Any, tape: Tape, decided: tuple[int, ...], inputs: list[Any]) -> None:
    """Keep the tape of a call, by the values of the inputs that calls like it decide by.

    Raises:
        OpaqueError: they decide by too many values.
    """
    known = tapes.get(key)
    if not decided and known is None:
        tapes[key] = tape
        return
    known = tapes[key] = Decided(decided) if known is None else known.also(decided)
    if not known.another():
        raise OpaqueError
    of_values = known.key(key, inputs)
    if of_values is not None:
        tapes[of_values] = tape


def _returned(result: Any, inputs: list[Any], own: list[Any]) -> Any:
    """The result with the caller's own tensors in place of their copies."""
    if result.__class__ is tuple:
        return tuple(_returned(x, inputs, own) for x in result)
    if named_tuple(result.__class__):
        return result.__class__(*(_returned(x, inputs, own) for x in result))
    return next((mine for copied, mine in zip(inputs, own, strict=True) if copied is result), result)


_UNKNOWN = object()


def replayed(number: Any, original: Callable[..., Any], *, placed: bool = False) -> Callable[..., Any]:
    """A function that does what `original` does, faster the second time.

    Args:
        number: tells it from others; None where its first argument does.
        original: what it stands for.
        placed: whether lines of `original` itself belong into reports.
    """
    b = builder()

    def call(*args: Any, **kwargs: Any) -> Any:
        tapes = b.tapes
        if tapes is None:
            return original(*args, **kwargs)
        inputs: list[Any] = []
        key = key_of(number, args, kwargs, inputs)
        tape = tapes.get(key, _UNKNOWN) if key is not None else None
        if tape.__class__ is Decided:
            of_values = tape.key(key, inputs)
            tape = None if of_values is None else tapes.get(of_values, _UNKNOWN)
        if tape.__class__ is Tape:
            return tape.run_within(b, inputs) if b.recordings else tape.run(b, *inputs)
        if tape is None:
            return original(*args, **kwargs)
        return _record(b, key, original, args, kwargs, placed=placed)

    return call


def replayed_function(watched: Globals) -> Callable[..., Any]:
    """What `InterpretedFunction.__call__` becomes."""
    original = stock.InterpretedFunction.__call__

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        watched.watch(self.rewrite())
        return original(self, *args, **kwargs)

    return replayed(None, call, placed=True)


def builtins() -> Iterator[tuple[Any, str, Any]]:
    """What is replaced in a language that is patched for interpreting: (owner, name, value)."""
    wanted = {
        tl.core.tensor: [*(f"__{name}__" for name in _OPERATORS), *_METHODS],
        tl: _FUNCTIONS,
        tl.core: _FUNCTIONS,
        tl.math: _FUNCTIONS,
    }
    for owner, names in wanted.items():
        for name in names:
            member = vars(owner).get(name)
            if member is not None and getattr(member, "__kwdefaults__", None) and "member" in member.__kwdefaults__:
                yield owner, name, replayed(f"{owner.__name__}.{name}", member)
