"""Functions of kernels exchanged for edited ones, for as long as somebody tries what the edit does."""

from __future__ import annotations

import ast
import contextlib
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.hooks import stock
from flashverify.interpreter.loop_code import REWRITTEN
from flashverify.interpreter.session import active

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

__all__ = ["exchanged", "function_of", "rewritten", "unrecorded"]


def rewritten() -> dict[CodeType, FunctionType]:
    """By the code that runs, the function of a kernel as its file has it; of every function that was run so far."""
    return {function.__code__: original for original, function in REWRITTEN.items()}


def function_of(tree: ast.Module, original: FunctionType, change: Callable[[ast.Module], ast.Module]) -> FunctionType:
    """What a session runs of the definition of a function, which is rewritten for it.

    Args:
        tree: of the definition alone.
        original: the function that it stands in for: it finds the same names, and is of the same file.
        change: of the rewritten tree.
    """
    changed = ast.fix_missing_locations(change(stock.FunctionRewriter.ast_transformer.visit(tree)))
    made: dict[str, Any] = {}
    exec(compile(changed, original.__code__.co_filename, "exec", dont_inherit=True), original.__globals__, made)
    function: FunctionType = made[original.__name__]
    return function


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
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
def exchanged(original: FunctionType, edited: FunctionType) -> Iterator[None]:
    """Until the end of the block, kernels run another function in place of one of theirs.

    Calls are replayed as they were recorded, and launches that are known are known still, but for those of functions that call the
    edited one.

    Args:
        original: the Python function of a kernel, or of a function that kernels call.
        edited: what runs in its place, rewritten for the interpreter.
    """
    session = active()
    assert session is not None
    known = session.lockstep_class.tapes  # type: ignore[attr-defined]
    stale = _callers(original)
    kept = None if known is None else {key: tape for key, tape in known.items() if _original(_called(key)) not in stale}
    before = {each: REWRITTEN[each] for each in stale if each in REWRITTEN}
    for each, function in before.items():
        REWRITTEN[each] = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__
        )
        REWRITTEN[each].__kwdefaults__ = function.__kwdefaults__
        REWRITTEN[each].__annotations__ = function.__annotations__
    REWRITTEN[original] = edited
    try:
        with _tapes(kept):
            yield
    finally:
        REWRITTEN.pop(original)
        REWRITTEN.update(before)


@contextlib.contextmanager
def _tapes(tapes: dict[Any, Any] | None) -> Iterator[None]:
    session = active()
    if session is None:
        yield
        return
    kind = session.lockstep_class
    before, kind.tapes = kind.tapes, None if kind.tapes is None else tapes  # type: ignore[attr-defined]
    try:
        yield
    finally:
        kind.tapes = before  # type: ignore[attr-defined]


def _called(key: Any) -> Any:
    """What a tape's call calls: the first part of its key, which one that decides by values has inside its own."""
    while key.__class__ is tuple:
        key = key[0]
    return key


def _original(called: Any) -> Any:
    return called.fn if called.__class__ is stock.InterpretedFunction else None


def _callers(original: FunctionType) -> set[FunctionType]:
    """The functions of kernels that are `original`, or call it, directly or by way of others."""
    callees = {function: _callees(function) for function in REWRITTEN}
    found = {original}
    grown = True
    while grown:
        more = {function for function, called in callees.items() if called & found} - found
        grown = bool(more)
        found |= more
    return found


@lru_cache(1 << 10)
def _callees(function: FunctionType) -> frozenset[Any]:
    """The functions of kernels whose names stand in the code of one, also behind the name of a module."""
    names, spelled = function.__globals__, _names(function.__code__)
    modules = [vars(x) for name in spelled if isinstance(x := names.get(name), ModuleType)]
    meant = (scope.get(name) for scope in (names, *modules) for name in spelled)
    return frozenset(each for each in map(_original, meant) if each is not None)


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if each.__class__ is code.__class__)
    return set(code.co_names).union(*map(_names, inner))
