"""The edits of the functions that ran, ready to be tried, and which of them comes next."""

from __future__ import annotations

import ast
import contextlib
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.modes import line_by_line
from flashverify.repair.candidates import sites
from flashverify.repair.copies import probed
from flashverify.repair.exchange import edited, in_place
from flashverify.repair.influence import influence
from flashverify.repair.probing import Probe, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flashverify.repair.bench import Effect
    from flashverify.repair.candidates import Candidate, Site
    from flashverify.repair.functions import Ran

__all__ = ["Pool", "Statement", "Unit", "reached", "reward"]

_TIERS = (1.0, 2.05, 3.0)
"""Costs from which on edits of a function are made ready together, those that cost less before."""
_OPENING = 0.3
"""What making the edits of a long function ready costs besides."""
_LONG = 100
"""Lines of one."""
_STEP = 1.2
"""Cost that a statement gains or loses by what its edits did, at most."""
_TIRING = 0.02
"""Cost of each edit of a statement that was tried before."""
_REACH = 1.2
"""Cost that a statement gains or loses by what it reaches, at most."""
_REACHES = 0.5
"""Share of what is wrong that a statement with the mistake reaches at least."""
_OF_FUNCTION = 0.8
"""Share of that which the other statements of its function get."""


@dataclass(eq=False)
class Statement:
    """A statement with the edits that are left of it, the cheapest last, and what it gains by what it reaches."""

    rewards: list[float]
    left: list[Candidate]
    prior: float = 0.0


@dataclass(eq=False)
class Unit:
    """Edits of a function that are made ready together.

    Attributes:
        ran: the function.
        handicap: cost that every edit of it has besides its own.
        rewards: of the edits that were tried of the function, by line.
        priors: what its statements gain by what they reach, by line.
        tier: number of the costs that its edits have.
        statements: None until it is made ready.
    """

    ran: Ran
    handicap: float
    rewards: dict[int, list[float]]
    priors: dict[int, float]
    tier: int
    statements: list[Statement] | None = None
    probe: Probe | None = None
    schema: Any = None

    def gained(self) -> float:
        """Cost that all statements of the function have gained."""
        every = [reward for rewards in self.rewards.values() for reward in rewards]
        return _STEP * _OF_FUNCTION * sum(every) / (len(every) + 2)

    def cheapest(self) -> tuple[float, Statement | None]:
        """What the next edit costs, and the statement that it is of; before it is made ready, what one costs at least."""
        base = self.handicap - self.gained()
        if self.statements is None:
            lines = (self.ran.node.end_lineno or 0) - self.ran.node.lineno
            opened = _TIERS[self.tier] + _OPENING * min(1.0, lines / _LONG)
            return base + opened - max(self.priors.values(), default=0.0), None
        best: tuple[float, Statement | None] = math.inf, None
        for each in self.statements:
            if each.left:
                tried = len(each.rewards)
                gained = each.prior + _STEP * sum(each.rewards) / (tried + 1)
                cost = base + each.left[-1].cost + _TIRING * tried - gained
                if cost < best[0]:
                    best = cost, each
        return best


class Pool:
    """Edits by what they cost and by what their neighbours did.

    Args:
        run: one run of the subject on the failing case.
        functions: that may hold the mistake, each with its handicap.
        effect: what the subject, as it is then, makes of the failing case.
    """

    def __init__(
        self,
        run: Callable[[], object],
        functions: Iterable[tuple[float, Ran]],
        effect: Callable[[], Effect | None],
    ) -> None:
        self._run, self._effect = run, effect
        self.units: list[Unit] = []
        for handicap, ran in functions:
            rewards: dict[int, list[float]] = defaultdict(list)
            priors: dict[int, float] = {}
            self.units += [Unit(ran, handicap, rewards, priors, tier) for tier in range(len(_TIERS))]
        self._of = {ran: [unit for unit in self.units if unit.ran is ran] for ran in {unit.ran for unit in self.units}}
        self._cheapest = {unit: unit.cheapest() for unit in self.units}
        self._last: Ran | None = None
        self._sites: dict[Ran, list[Site]] = {}
        self._alike: dict[Candidate, list[Candidate]] = {}

    def next(self) -> tuple[Statement, Unit, Candidate] | None:
        """The edit that comes next, which is taken out; None where none is left."""
        if self._last is not None:  # what it did counts for its function alone
            self._ask_again(self._last)
        while self.units:
            unit = min(self.units, key=lambda each: self._cheapest[each][0])
            cost, statement = self._cheapest[unit]
            if statement is not None:
                self._last = unit.ran
                return statement, unit, statement.left.pop()
            if math.isinf(cost):
                break
            self._make_ready(unit)
            self._ask_again(unit.ran)
        return None

    def _ask_again(self, ran: Ran) -> None:
        for each in self._of[ran]:
            self._cheapest[each] = each.cheapest()

    def alike(self, candidate: Candidate) -> list[Candidate]:
        """The edits that do the same on the failing case, itself first."""
        return self._alike[candidate]

    def _make_ready(self, unit: Unit) -> None:
        """Of edits that compute the same values on the case one is kept, and none that changes nothing there."""
        if unit.ran not in self._sites:
            self._sites[unit.ran] = list(sites(unit.ran))
            for node, effect in influence(unit.ran, self._effect):
                prior = _REACH * reached(effect, passed=isinstance(node, ast.expr))
                unit.priors[node.lineno] = max(prior, unit.priors.get(node.lineno, -math.inf))
        least, most = (-math.inf, *_TIERS[1:], math.inf)[unit.tier : unit.tier + 2]
        found = [
            (site.line, [each for each in site.candidates if least <= each.cost < most])
            for site in self._sites[unit.ran]
        ]
        every = [candidate for _, candidates in found for candidate in candidates]
        unit.statements = []
        if not every:
            return
        unit.probe = Probe(every)
        classes: dict[Candidate, list[Candidate]] = {each: [each] for each in every}
        with contextlib.suppress(Exception):
            unit.schema = probed(unit.ran, unit.probe)
            with in_place(unit.ran, unit.schema), watching(unit.probe), line_by_line():
                self._run()
            distinct, asked = unit.probe.distinct()
            classes = {each: [each] for each in every if each not in asked} | distinct
        for line, candidates in found:
            left = [each for each in reversed(candidates) if each in classes]
            if left:
                prior = unit.priors.get(line, 0.0)
                unit.statements.append(Statement(unit.rewards[line], left, prior))
        self._alike |= classes

    @contextlib.contextmanager
    def applied(self, unit: Unit, candidate: Candidate) -> Iterator[None]:
        """The edit is in place until the end of the block.

        Raises:
            SyntaxError: it makes no Python.
        """
        probe = unit.probe
        if probe is not None and unit.schema is not None and probe.has(candidate):
            with in_place(unit.ran, unit.schema), watching(probe), probe.instead(candidate):
                yield
            return
        with in_place(unit.ran, edited(unit.ran, candidate.edit)):
            yield


def reward(effect: Effect | None) -> float:
    """How promising the statement is whose edit did that, from -1 to 2: where the mistake is, an edit moves what is wrong, and little else.

    Args:
        effect: None where the subject raised.
    """
    if effect is None:
        return -0.15
    if not effect.changed:
        return -0.3
    return 1.2 * effect.fixed + 0.8 * effect.aimed * effect.touched - 0.3 * effect.broken


def reached(effect: Effect | None, *, passed: bool) -> float:
    """How promising a statement is whose value, once it is another one, does that: where the mistake is, it reaches all that is wrong.

    Args:
        effect: None where the subject raised.
        passed: the value is passed to a call that may store it: elsewhere, or not at all.
    """
    if effect is not None and effect.touched < _REACHES:
        return 0.0 if passed else -1.0
    return reward(effect)
