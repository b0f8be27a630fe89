"""The change of one place of a subject's source with which it is right."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from flashverify.repair.bench import Bench, bench
from flashverify.repair.functions import executed
from flashverify.repair.judges import Judges
from flashverify.repair.pool import Pool, reward

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FunctionType

    from flashverify.case.case import Case
    from flashverify.repair.candidates import Candidate
    from flashverify.repair.functions import Ran
    from flashverify.subjects.interface import Subject

__all__ = ["Repairs", "search"]

_SEARCHED = 0.75
"""Share of the time after which no other edit is tried beside one that repairs."""
_MORE = 0.3
"""Share of the time that was needed for the first repair for looking for others."""
_REPAIRS = 4
"""Repairs after which no other one is looked for."""
_ALIKE = 30
"""Edits that do the same on the failing case of which each is tried on the further ones."""


class Repairs:
    """What was tried, and what repairs."""

    def __init__(self) -> None:
        self.found: list[Candidate] = []
        self.tried = self.overfitted = 0
        self.cases = self.failing = 0
        self.generated = self.kept = 0
        self.log: list[str] = []


def search(subject: Subject, case: Case, *, first: Case | None, seconds: float, clock: Callable[[], float] = time.monotonic) -> Repairs:
    """Edits of one place after which the subject is right on `case` and on further cases."""
    begun, made = clock(), Repairs()

    found = bench(subject, case)
    if found is None:
        return made
    ran = _ran(found)
    made.log.append(f"{clock() - begun:.2f} traced {len(ran)}")
    functions = _by_suspicion(found, ran)
    made.log.append(f"{clock() - begun:.2f} ordered " + ", ".join(f"{each.name} {handicap:.2f}" for handicap, each in functions[:12]))
    pool = Pool(found.execution, functions)
    judges, wrong = Judges(subject, case, first), frozenset(found.scene.failures)
    end = _SEARCHED * seconds
    while clock() - begun < end and len(made.found) < _REPAIRS:
        chosen = pool.next()
        if chosen is None:
            break
        statement, unit, candidate = chosen
        made.tried += 1
        try:
            with pool.applied(unit, candidate):
                effect = found.effect()
        except SyntaxError:
            continue
        statement.rewards.append(reward(effect, wrong))
        if effect is not None and effect.repaired:
            for each in pool.alike(candidate)[:_ALIKE]:
                try:
                    right = judges.all_right(partial(pool.applied, unit, each))
                except SyntaxError:
                    continue
                made.overfitted += not right
                made.log.append(f"{clock() - begun:.2f} {'REPAIR' if right else 'overfit'} {_words(each)}")
                if right:
                    if not made.found:
                        end = min(end, max((clock() - begun) * (1 + _MORE), clock() - begun + 1.0))
                    made.found.append(each)
                    break
    made.generated, made.kept = pool.generated, pool.kept
    made.cases, made.failing = judges.cases, judges.failing
    return made


def _words(candidate: Candidate) -> str:
    text, edit = candidate.ran.source.text, candidate.edit
    line = text.count("\n", 0, edit.start) + 1
    return f"{candidate.ran.file.name}:{line} {candidate.ran.name}: {text[edit.start:edit.end]!r} -> {edit.text!r} [{candidate.cost:.2f}]"


def _kernels() -> dict[CodeType, FunctionType]:
    if "flashverify.interpreter.session" not in sys.modules:
        return {}
    from flashverify.interpreter.exchanging import rewritten

    return rewritten()


def _ran(found: Bench) -> list[Ran]:
    from flashverify.repair.pool import plainly

    with plainly():
        return executed(found.execution, _kernels)


def _by_suspicion(found: Bench, ran: list[Ran]) -> list[tuple[float, Ran]]:
    """The functions, those first under whose kernels what is wrong is made and little else."""
    import ast

    from flashverify.repair.exchange import code_of, in_place

    wrong = set(found.scene.failures)
    share: dict[str, float] = {}
    for each in ran:
        if each.kernel is None or each.under != {each.name}:
            continue

        def nothing(tree: ast.Module, _: int) -> ast.Module:
            node = tree.body[0]
            assert isinstance(node, ast.FunctionDef)
            node.body.insert(0, ast.Return(None))
            return tree

        with in_place(each, code_of(each, nothing)):
            effect = found.effect()
        if effect is not None:
            share[each.name] = len(wrong & effect.changed) / max(len(effect.changed), 1)
    ordered = []
    for number, each in enumerate(ran):
        if _only_checks(each):
            continue
        shares = [share[root] for root in each.under if root in share]
        of_kernel = sum(shares) / len(shares) if shares else 0.5
        handicap = 0.8 * (1 - of_kernel) + 0.4 * (each.kernel is None and bool(share)) + 0.0001 * number
        ordered.append((handicap, each))
    return sorted(ordered, key=lambda pair: pair[0])


def _only_checks(ran: Ran) -> bool:
    """Whether a function does nothing but refuse arguments."""
    import ast

    if ran.kernel is not None:
        return False
    return not any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(ran.node)) and any(
        isinstance(node, ast.Raise) for node in ast.walk(ran.node)
    )
