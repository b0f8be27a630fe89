"""Functions of kernels exchanged for edited ones, for as long as somebody tries what the edit does."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.hooks import stock
from flashverify.interpreter.loop_code import REWRITTEN
from flashverify.interpreter.session import active

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FunctionType

__all__ = ["exchanged", "line_by_line", "rewritten"]


def rewritten() -> dict[CodeType, FunctionType]:
    """By the code that runs, the function of a kernel as its file has it; of every function that was run so far."""
    return {function.__code__: original for original, function in REWRITTEN.items()}


@contextlib.contextmanager
def line_by_line() -> Iterator[None]:
    """Until the end of the block every line of a kernel, and of what it calls, runs in Python; only what Triton's language has is replayed."""
    session = active()
    if session is None:
        yield
        return
    known = session.lockstep_class.tapes  # type: ignore[attr-defined]
    kept = None if known is None else {key: x for key, x in known.items() if _called(key).__class__ is str}
    before = stock.InterpretedFunction.__call__
    stock.InterpretedFunction.__call__ = _called_plainly
    try:
        with _tapes(kept):
            yield
    finally:
        stock.InterpretedFunction.__call__ = before


def _called_plainly(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.rewrite()(*args, **kwargs)


@contextlib.contextmanager
def exchanged(original: Any, edited: Any) -> Iterator[None]:
    """Until the end of the block, kernels run another function in place of one of theirs.

    Calls of every other function are replayed as they were recorded, unless these call the edited one.

    Args:
        original: the Python function of a kernel, or of a function that kernels call.
        edited: what runs in its place, rewritten for the interpreter.
    """
    session = active()
    assert session is not None
    before, known = REWRITTEN.get(original), session.lockstep_class.tapes
    stale = _callers(original, {key[0] for key in known or () if key[0].__class__ is stock.InterpretedFunction})
    kept = None if known is None else {key: tape for key, tape in known.items() if _called(key) not in stale}
    REWRITTEN[original] = edited
    try:
        with _tapes(kept):
            yield
    finally:
        if before is None:
            del REWRITTEN[original]
        else:
            REWRITTEN[original] = before


@contextlib.contextmanager
def _tapes(tapes: dict[Any, Any] | None) -> Iterator[None]:
    session = active()
    if session is None:
        yield
        return
    kind = session.lockstep_class
    before, kind.tapes = kind.tapes, None if kind.tapes is None else tapes  # type: ignore[attr-defined]
    session.meanings += 1
    try:
        yield
    finally:
        kind.tapes = before  # type: ignore[attr-defined]
        session.meanings += 1


def _called(key: Any) -> Any:
    """What a tape's call calls: the first part of its key, which one that decides by values has inside its own."""
    while key.__class__ is tuple:
        key = key[0]
    return key


def _callers(original: Any, known: Iterable[Any]) -> set[Any]:
    """The interpreted functions that are `original`, or call it, directly or by way of others."""
    callees = {function: _callees(function) for function in known}
    found = {function for function in callees if function.fn is original}
    grown = True
    while grown:
        more = {function for function, names in callees.items() if names & found} - found
        grown = bool(more)
        found |= more
    return found


def _callees(function: Any) -> set[Any]:
    """The interpreted functions whose names stand in the code of one, also behind the name of a module."""
    names = function.fn.__globals__
    found, spelled = set(), _names(function.fn.__code__)
    for name in spelled:
        meant = names.get(name)
        if meant.__class__ is stock.InterpretedFunction:
            found.add(meant)
        elif meant.__class__ is type(contextlib):
            inside = (vars(meant).get(other) for other in spelled)
            found |= {each for each in inside if each.__class__ is stock.InterpretedFunction}
    return found


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if each.__class__ is code.__class__)
    return set(code.co_names).union(*map(_names, inner))
