"""Which functions may hold the mistake: those first under whose kernels what is wrong is made, and little else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flashverify.interpreter.modes import kernels_so_far, line_by_line
from flashverify.repair.exchange import code_of, in_place
from flashverify.repair.functions import executed

if TYPE_CHECKING:
    from flashverify.repair.bench import Bench
    from flashverify.repair.functions import Ran

__all__ = ["suspects"]

_UNKNOWN = 0.7
"""Share of what a kernel makes that is taken to be wrong where that is not known."""
_RIGHT, _HOST, _OF_NO_FLOATS = 1.2, 0.15, 0.4
"""Cost of a function under whose kernels nothing wrong is made; of what runs outside of kernels; and of that of it which returns no floats."""
_LATER = 1e-4
"""Cost of each function that ran before."""
_REACHING_OUT = frozenset(
    "os shutil subprocess socket pathlib Path requests urllib open exec eval exit remove unlink rmtree system".split()  # noqa: SIM905
)
"""Names in functions that are left alone: an edit of them might do more than compute."""


def suspects(bench: Bench) -> list[tuple[float, Ran]]:
    """The functions of the subject that run on the failing case, each with a cost, the likeliest first.

    Raises:
        Exception: what the subject raises.
    """
    with line_by_line():
        ran = executed(bench.execution, kernels_so_far)
    share = {each.name: _share(bench, each) for each in ran if each.kernel is not None and each.under == {each.name}}
    found = []
    for number, each in enumerate(ran):
        if _only_checks(each) or _REACHING_OUT & each.read:
            continue
        shares = [share[root] for root in each.under if root in share]
        of_wrong = sum(shares) / len(shares) if shares else _UNKNOWN
        host = each.kernel is None and bool(share)
        cost = _HOST + _OF_NO_FLOATS * (not each.returned.startswith("float")) if host else 0.0
        found.append((_RIGHT * (1 - of_wrong) + cost + _LATER * number, each))
    return sorted(found, key=lambda pair: pair[0])


def _share(bench: Bench, kernel: Ran) -> float:
    """How many of the outputs that change where a kernel does nothing are wrong."""
    with in_place(kernel, code_of(kernel, _doing_nothing)):
        effect = bench.effect()
    if effect is None:
        return _UNKNOWN
    return len(effect.changed & bench.wrong) / max(len(effect.changed), 1)


def _doing_nothing(tree: ast.Module, _column: int) -> ast.Module:
    node = tree.body[0]
    assert isinstance(node, ast.FunctionDef)
    node.body.insert(0, ast.Return(None))
    return tree


def _only_checks(ran: Ran) -> bool:
    """Whether a function does nothing but refuse arguments."""
    nodes = list(ast.walk(ran.node))
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in nodes)
    return ran.kernel is None and not returns and any(isinstance(node, ast.Raise) for node in nodes)
