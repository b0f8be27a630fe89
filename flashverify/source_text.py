"""The text of a Python file with its syntax tree, and edits of it that leave every other character as it is."""

from __future__ import annotations

import ast
from itertools import accumulate

__all__ = ["Source", "called"]


class Source:
    """A file and its syntax tree; positions are characters from the start of the file.

    Raises:
        SyntaxError: the text is no Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = [f"{line}\n" for line in text.split("\n")]
        self._starts = [0, *accumulate(len(line) for line in self._lines)]

    def position(self, line: int, column: int) -> int:
        """From a line, counted from 1, and a column in UTF-8 bytes, as the syntax tree has them."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """First character of a node, and the one after its last."""
        assert isinstance(node, (ast.expr, ast.stmt, ast.keyword))
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.position(node.lineno, node.col_offset), self.position(node.end_lineno, node.end_col_offset)

    def between(self, left: ast.AST, right: ast.AST, symbol: str) -> tuple[int, int]:
        """Where the operator `symbol` between two operands stands."""
        start = self.text.index(symbol, self.span(left)[1], self.span(right)[0])
        return start, start + len(symbol)

    def of(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]


def called(node: ast.AST) -> str:
    """The last part of the name that a call calls; empty of anything else."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""
