"""The change of one place of a subject's source with which it is right."""

from __future__ import annotations

import sys
import time
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.neighbours import neighbours
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.trials import work
from flashverify.repair.bench import Bench, bench, within
from flashverify.repair.functions import executed
from flashverify.repair.pool import Pool, reward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FunctionType

    from flashverify.case.case import Case
    from flashverify.repair.candidates import Candidate
    from flashverify.repair.functions import Ran
    from flashverify.subjects.interface import Subject

__all__ = ["Repairs", "search"]

_CASES, _FAILING = 24, 6
"""Further cases on which a repair is tried, and how many of them must fail without it, if so many are found."""
_LOOKED_AT = 60
"""Cases that are run to find them."""
_SEARCHED = 0.75
"""Share of the time after which no other edit is tried beside one that repairs."""
_MORE = 0.3
"""Share of the time that was needed for the first repair for looking for others."""
_REPAIRS = 4
"""Repairs after which no other one is looked for."""
_ALIKE = 30
"""Edits that do the same on the failing case of which each is tried on the further ones."""
_LARGE = 1 << 13
"""Pairs of rows and keys, over all heads, of the largest case on which repairs are tried, if enough smaller ones fail."""
_CASE_LIMIT = 5.0
"""Seconds that one case may take."""


class Repairs:
    """What was tried, and what repairs."""

    def __init__(self) -> None:
        self.found: list[Candidate] = []
        self.tried = self.overfitted = 0
        self.cases = self.failing = 0
        self.generated = self.kept = 0
        self.log: list[str] = []


class _Judges:
    """Cases on which a repair must be right; those that refuted an edit come first."""

    def __init__(self, subject: Subject, case: Case, first: Case | None, left: Callable[[], float]) -> None:
        self._subject = subject
        self._cases: list[Case] = []
        self._more = self._drawn(case, first)
        self._left = left
        self.failing = 0
        self.count = 0

    def _drawn(self, case: Case, first: Case | None) -> Iterator[tuple[Case, bool]]:
        """Cases that the unedited subject runs, and whether it fails on them: failing and right ones, first of all the given one."""
        subject = self._subject
        near, wide = neighbours(subject.supports, case), variants(subject, case)
        given = iter(() if first is None or first == case else (first,))
        taken = {True: 0, False: 0}
        for each in islice(_in_turns(given, wide, near), _LOOKED_AT):
            if each is None or (work(each) > _LARGE and each != first) or work(each) > LARGEST or subject.supports.refusal(each) is not None:
                continue
            try:
                with within(_CASE_LIMIT):
                    scene = look(subject, each)
            except Exception:
                continue
            if scene is None:
                continue
            fails = bool(scene.failures)
            if taken[fails] >= (_CASES - _FAILING if fails else _CASES // 2):
                continue
            taken[fails] += 1
            yield each, fails
            if sum(taken.values()) >= _CASES and taken[True] >= _FAILING:
                return

    def prepare(self) -> None:
        """Find the cases, with the unedited subject."""
        for each, fails in self._more:
            self._cases.append(each)
            self.failing += fails
            self.count += 1
            if self._left() <= 0:
                return

    def all_right(self) -> bool:
        """Whether the subject as it is now is right on all of them."""
        for number, case in enumerate(self._cases):
            try:
                with within(_CASE_LIMIT):
                    scene = look(self._subject, case)
            except Exception:
                scene = None
            if scene is None or scene.failures:
                self._cases.insert(0, self._cases.pop(number))
                return False
        return True


def _in_turns(given: Iterator[Case], *each: Iterator[Case]) -> Iterator[Case]:
    yield from given
    open_ = list(each)
    while open_:
        for one in list(open_):
            found = next(one, None)
            if found is None:
                open_.remove(one)
            else:
                yield found


def search(subject: Subject, case: Case, *, first: Case | None, seconds: float, clock: Callable[[], float] = time.monotonic) -> Repairs:
    """Edits of one place after which the subject is right on `case` and on further cases."""
    begun, made = clock(), Repairs()

    def left() -> float:
        return seconds - (clock() - begun)

    found = bench(subject, case)
    if found is None:
        return made
    ran = _ran(found)
    made.log.append(f"{clock() - begun:.2f} traced {len(ran)}")
    functions = _by_suspicion(found, ran)
    made.log.append(f"{clock() - begun:.2f} ordered " + ", ".join(f"{each.name} {handicap:.2f}" for handicap, each in functions[:12]))
    pool = Pool(found.execution, functions)
    judges: _Judges | None = None
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
        statement.rewards.append(reward(effect))
        if effect is not None and effect.repaired:
            if judges is None:
                judges = _Judges(subject, case, first, left)
                judges.prepare()
                made.log.append(f"{clock() - begun:.2f} judges {judges.count} failing {judges.failing}")
            for each in pool.alike(candidate)[:_ALIKE]:
                try:
                    with pool.applied(unit, each):
                        right = judges.all_right()
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
    if judges is not None:
        made.cases, made.failing = judges.count, judges.failing
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
