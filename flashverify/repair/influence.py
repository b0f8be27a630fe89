"""Which elements of the outputs a statement reaches: what it assigns or returns is moved, and the subject run once."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING

from flashverify.repair.candidates import Candidate, statements_that_ran
from flashverify.repair.copies import probed
from flashverify.repair.exchange import Edit, in_place
from flashverify.repair.probing import Probe, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.repair.bench import Effect
    from flashverify.repair.functions import Ran

__all__ = ["influence"]

_MOVED = "* 1.375 + 0.0625"
"""What makes another value of a float, of 0 too."""


def influence(ran: Ran, effect: Callable[[], Effect | None]) -> Iterator[tuple[ast.expr | ast.stmt, Effect | None]]:
    """For each statement of a function that makes floats, and for each argument of one that only calls, what becomes of the outputs where these are other ones.

    Args:
        ran: the function.
        effect: runs the subject as it is now; None where it raises.
    """
    moved = [each for node in statements_that_ran(ran) for each in _moved(ran, node)]
    if not moved:
        return
    probe = Probe(moved)
    with contextlib.suppress(Exception):  # of what no copy can be put in place nothing is known, as in a pool
        copy = probed(ran, probe)
        for each in moved:
            if probe.has(each):
                with in_place(ran, copy), watching(probe), probe.instead(each):
                    found = effect()
                yield each.node, found


def _moved(ran: Ran, node: ast.stmt) -> Iterator[Candidate]:
    """The edits after which a statement makes, returns or passes other floats."""
    start, end = ran.source.span(node)
    if isinstance(node, ast.Return) and node.value is not None and ran.returned.startswith("float"):
        yield Candidate(ran, Edit(start, end, f"return ({ran.source.of(node.value)}) {_MOVED}"), 0.0, node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        for each in node.value.args:
            if _is_of_floats(ran, each):
                yield Candidate(ran, Edit(*ran.source.span(each), f"(({ran.source.of(each)}) {_MOVED})"), 0.0, each)
    target: ast.expr | None = node.target if isinstance(node, ast.AugAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    if isinstance(target, ast.Name) and ran.kinds.get(target.id, "").startswith("float"):
        text = f"{ran.source.of(node)}; {target.id} = {target.id} {_MOVED}"
        yield Candidate(ran, Edit(start, end, text), 0.0, node)


def _is_of_floats(ran: Ran, node: ast.expr) -> bool:
    kinds = [ran.kinds.get(each.id, "") for each in ast.walk(node) if isinstance(each, ast.Name)]
    return any(kind.startswith("float[") for kind in kinds) and not any(kind.startswith("pointer") for kind in kinds)
