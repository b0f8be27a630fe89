"""Loads and stores of kernels: whose mask is missing, or which get the wrong value where it hides."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.operators.around import Around, Varied

__all__ = ["hidden", "unmasked"]

_LOWEST = 'float("-inf")'
_CONDITIONS = 10
"""Conditions that are tried as a mask."""


def hidden(node: ast.AST, around: Around) -> Iterator[Varied]:
    """Another value where the mask of a load hides."""
    if not around.in_kernel or called(node) != "load" or not isinstance(node, ast.Call):
        return
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    mask, other = keywords.get("mask"), keywords.get("other")
    if other is not None:
        for value, cost in (("0.0", 1.6), (_LOWEST, 1.7)):
            if around.of(other) not in (value, value.removesuffix(".0")):
                yield around.replaced(other, value, cost)
    elif mask is not None:
        for value, cost in (("0.0", 1.6), (_LOWEST, 2.0)):
            yield around.replaced(node, around.with_argument(node, f"other={value}"), cost)


def unmasked(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A load or a store without a mask."""
    if not around.in_kernel or called(node) not in ("load", "store") or not isinstance(node, ast.Call):
        return
    if len(node.args) > 1 + (called(node) == "store") or any(keyword.arg == "mask" for keyword in node.keywords):
        return
    other = ", other=0.0" if called(node) == "load" else ""
    for rank, condition in enumerate(around.ran.conditions[:_CONDITIONS]):
        yield around.replaced(node, around.with_argument(node, f"mask={condition}{other}"), 2.3 + 0.1 * rank)
