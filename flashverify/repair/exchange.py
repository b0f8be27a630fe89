"""An edit of a function put in place in a running process, and taken back."""

from __future__ import annotations
import __future__

import ast
import contextlib
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.repair.functions import Ran

__all__ = ["Edit", "code_of", "edited", "in_place"]

_FLAGS = __future__.annotations.compiler_flag


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in a file.

    Attributes:
        start: first replaced character.
        end: the one after the last.
        text: what takes its place.
    """

    start: int
    end: int
    text: str


def edited(ran: Ran, edit: Edit) -> Any:
    """What runs in place of a function with an edit: a function for a kernel, else code.

    Raises:
        SyntaxError: the edited text is no Python.
    """
    return _made(ran, edit, lambda tree, _: tree, _unchanged)


def _unchanged(tree: ast.Module) -> ast.Module:
    return tree


def code_of(
    ran: Ran,
    change: Callable[[ast.Module, int], ast.Module],
    *,
    prepared: Callable[[ast.Module], ast.Module] = _unchanged,
) -> Any:
    """What runs in place of a function whose syntax tree is changed.

    Args:
        ran: the function.
        change: from a tree, in whose lines those of the file are counted, and the column that its columns count from, to the changed one.
        prepared: what becomes of the tree before the interpreter of a kernel rewrites it.
    """
    return _made(ran, Edit(0, 0, ""), change, prepared)


def _made(
    ran: Ran,
    edit: Edit,
    change: Callable[[ast.Module, int], ast.Module],
    prepared: Callable[[ast.Module], ast.Module],
) -> Any:
    of_kernel = ran.kernel is not None
    whole = ran.node if of_kernel else ran.top
    first = (
        whole.lineno if of_kernel else min([whole.lineno, *(x.lineno for x in getattr(whole, "decorator_list", ()))])
    )
    tree = ast.parse(_text(ran, whole, first, edit))
    ast.increment_lineno(tree, first - 1)
    tree = prepared(tree)
    if of_kernel:
        from flashverify.interpreter.exchanging import function_of

        return function_of(tree, ran.kernel, lambda rewritten: change(rewritten, whole.col_offset))
    tree = ast.fix_missing_locations(change(tree, whole.col_offset))
    like = ran.functions[0].__code__
    code = _inner(compile(tree, str(ran.file), "exec", flags=like.co_flags & _FLAGS, dont_inherit=True), like)
    if code is None:
        raise SyntaxError("the edit removes the function")
    return code


def _text(ran: Ran, node: ast.stmt, first: int, edit: Edit) -> str:
    """The text of a statement from a line on with the edit in it, at the left margin."""
    text, column = ran.source.text, node.col_offset
    start, end = ran.source.position(first, 0), ran.source.span(node)[1]
    whole = text[start:end] if edit.end < start else text[start : edit.start] + edit.text + text[edit.end : end]
    if column == 0:
        return whole
    return "\n".join(line[column:] if line[:column].isspace() else line for line in whole.split("\n"))


def _inner(code: CodeType, like: CodeType) -> CodeType | None:
    """The code inside `code` that stands where `like` stood."""
    wanted = (like.co_name, like.co_firstlineno, like.co_freevars)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if (each.co_name, each.co_firstlineno, each.co_freevars) == wanted:
                return each
            if (found := _inner(each, like)) is not None:
                return found
    return None


@contextlib.contextmanager
def in_place(ran: Ran, made: Any) -> Iterator[None]:
    """The edited function runs until the end of the block."""
    if ran.kernel is not None:
        from flashverify.interpreter.exchanging import exchanged

        with exchanged(ran.kernel, made):
            yield
        return
    before = [function.__code__ for function in ran.functions]
    try:
        for function in ran.functions:
            function.__code__ = made
        yield
    finally:
        for function, code in zip(ran.functions, before, strict=True):
            function.__code__ = code
