"""A process that finds out what a subject launches: a subject's name as argument, its launches as one JSON object on stdout.

A subject with a method `launches()` is asked. Any other is run on small cases in Triton's interpreter, and the launches are
recorded: one for every kernel, dtype, mask, alignment and set of constants that the compiler would tell apart.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.compiling.grids import grid_hazards
from flashverify.compiling.records import Hazard
from flashverify.subjects.launches import Argument, Device, Element, Launch, Opaque, Pointer, Real, Record, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case import Case
    from flashverify.subjects import Subject

__all__ = ["Discovery", "discover", "recording"]

_DIMS = (64, 128, 72)
_MASKS: tuple[dict[str, Any], ...] = ({}, {"causal": "top-left"}, {"causal": "bottom-right"}, {"key_lengths": (29,)})
_INT32 = 2**31


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Args:
        deterministic: whether the contract promises equal bits.
        launches: each kind once.
        problem: why there are none.
        hazards: of the grids of these launches.
    """

    deterministic: bool
    launches: tuple[Launch, ...]
    problem: str = ""
    hazards: tuple[Hazard, ...] = ()


def discover(subject: Subject) -> Discovery:
    """The launches of a subject."""
    deterministic = bool(subject.contract.deterministic)
    declared = getattr(subject, "launches", None)
    if declared is not None:
        return Discovery(deterministic=deterministic, launches=tuple(declared()))
    if not os.environ.get("TRITON_INTERPRET"):
        raise RuntimeError("launches are recorded in the interpreter: set TRITON_INTERPRET=1 before triton is imported")
    from flashverify.interpreter import faithful

    found: dict[tuple[str, ...], Launch] = {}
    problem, hazards, plainest = "it accepts none of the small cases", tuple[Hazard, ...](), None
    with faithful():
        for case in _cases(subject):
            launches: list[Launch] = []
            problem = "it launches no Triton kernel"
            try:
                with recording(launches, _label(case)):
                    _run(subject, case)
            except Exception as error:
                problem = f"{_label(case)}: {type(error).__name__}: {error}"
            for launch in launches:
                found.setdefault(_key(launch), launch)
            plainest = plainest or (case if launches else None)
        if plainest is not None:
            hazards = grid_hazards(subject, plainest, _run)
    why = "" if found else problem
    return Discovery(deterministic=deterministic, launches=tuple(found.values()), problem=why, hazards=hazards)


@contextlib.contextmanager
def recording(launches: list[Launch], label: str) -> Iterator[None]:
    """Note every launch of an interpreted kernel, and let it run."""
    from triton.runtime.interpreter import InterpretedFunction

    original = InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        launches.append(_launch(self, label, args, kwargs))
        return original(self, *args, grid=grid, warmup=warmup, **kwargs)

    InterpretedFunction.run = run
    try:
        yield
    finally:
        InterpretedFunction.run = original


def _launch(kernel: Any, label: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
    import triton.language as tl

    signature = inspect.signature(kernel.fn)
    options = {name: value for name, value in kwargs.items() if name not in signature.parameters}
    bound = signature.bind(*args, **{name: value for name, value in kwargs.items() if name in signature.parameters})
    bound.apply_defaults()
    arguments = {}
    for name, value in bound.arguments.items():
        annotation = signature.parameters[name].annotation
        constant = annotation is tl.constexpr or "constexpr" in str(annotation)
        arguments[name] = _argument(value, constant=constant)
    return Launch(
        label=label,
        module=kernel.fn.__module__,
        kernel=kernel.fn.__qualname__,
        arguments=arguments,
        options={name: value for name, value in options.items() if isinstance(value, int | float | str | None)},
    )


def _argument(value: Any, *, constant: bool) -> Argument:
    import torch
    import triton.language as tl

    value = value.value if isinstance(value, tl.constexpr) else value
    if isinstance(value, torch.Tensor):
        return Pointer(str(value.dtype).removeprefix("torch."), value.data_ptr() % 16)
    if isinstance(value, tl.dtype):
        return Element(value.name)
    if isinstance(value, tuple):
        kind = type(value)
        named = (kind.__module__, kind.__qualname__) if hasattr(kind, "_fields") else ("", "")
        return Record(*named, tuple(_argument(x, constant=constant) for x in value))
    if isinstance(value, int) and not isinstance(value, bool) and not constant:
        return Value(_class_of(value))
    if isinstance(value, float):
        return Real(value.hex() if constant else (0.5).hex())
    if isinstance(value, int | str | None):
        return Value(value)
    inner = getattr(value, "fn", None)
    if inspect.isfunction(inner):
        return Device(inner.__module__, inner.__qualname__)
    return Opaque(repr(value)[:200])


def _class_of(value: int) -> int:
    """An integer that the compiler treats as it treats `value`."""
    if not -_INT32 <= value < _INT32:
        return 2**40 if value % 16 == 0 else 2**40 + 1
    return 1 if value == 1 else 16 if value % 16 == 0 else 7


def _cases(subject: Subject) -> Iterator[Case]:
    from flashverify.case import Case, Grad, Mask, Storage
    from flashverify.case.space.fit import fitted

    supports = subject.supports
    for dtype, dim, parts in itertools.product(supports.dtypes, _DIMS, _MASKS):
        length = 32 if dim == 64 else 33
        storage = Storage(layout=supports.layouts[0])
        grad = Grad(backward=supports.backward)
        sizes = {"seq_q": length, "seq_k": length, "dim_qk": dim, "dim_v": dim, "heads_q": 2, "heads_kv": 2}
        case = Case(dtype=dtype, mask=Mask(**parts), storage=storage, grad=grad, **sizes)
        found = fitted(supports, case)
        if found is not None:
            yield found


def _label(case: Case) -> str:
    parts = "".join(f" {part}" for part in sorted(case.mask.parts()))
    return f"{case.dtype} d={case.dim_qk} seq={case.seq_q}{parts}"


def _run(subject: Subject, case: Case) -> None:
    from flashverify.case.memory.materialize import materialize

    problem, _arena = materialize(case)
    forward = subject.forward(problem)
    if case.grad.backward:
        subject.backward(problem, forward)


def _key(launch: Launch) -> tuple[str, ...]:
    encoded = msgspec.json.encode((launch.arguments, launch.options)).decode()
    return (launch.module, launch.kernel, encoded)


def main() -> None:
    """Print what the subject of the command line launches."""
    from flashverify.subjects import load_subject

    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    out.write(msgspec.json.encode(discover(load_subject(sys.argv[1]))))


if __name__ == "__main__":
    main()
