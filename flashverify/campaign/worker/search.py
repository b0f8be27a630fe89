"""The search: Hypothesis draws cases, this judges them, then climbs from those that came closest to their bound (`climb`).

A failing case never raises inside Hypothesis: it is data, handed up at once, and shrunk later by `campaign.shrink`. So
known defects neither stop a batch nor change what it draws, and a batch is reproducible from its seed.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable

from flashverify.campaign.ahead import ahead_of
from flashverify.campaign.worker.climb import Climber
from flashverify.campaign.worker.stable_draws import stable_draws
from flashverify.case.space.coverage import Coverage
from flashverify.case.text import format_case, parse_case
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.strategies import SearchStrategy

    from flashverify.campaign.protocol import Batch
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult

__all__ = ["draw", "draw_some", "fresh", "search"]

_ROUND = 10
"""Examples of one run of Hypothesis. From the eleventh on most examples of a run are the last one with one part copied over
another: of 200 examples of one run only some 45 are independent draws, and a third are cases that it had before."""
_LEFT_OUT = 2
"""Of a round of different cases, those that are left out because their pairs of traits are the best covered ones."""
_BARREN = 5
"""Rounds in a row without a new case after which a strategy is exhausted."""
_REFUSED = 2
"""Rounds, of hundreds of tries each, without any case after which there are none."""
_CLIMBING = 5
"""One case in so many is a neighbour of a case that came close to its bound."""
_TRIES = 8
"""Proposals of the climber per case that it is to judge."""


def search(session: Session, task: Batch) -> None:
    """Judge the cases of one batch; each case once, quarantined ones and those that were judged before never.

    Raises:
        UsageError: nothing can be drawn, because the subject refuses every draw; the message says for which reasons.
    """
    subject, climber = session.subject(task.subject), Climber(task.seed)
    drawn_cases, judge = _means(session, subject, task)
    known = {each.case: each for each in task.answered}
    seen = set(task.quarantine) - known.keys()
    left = task.examples if task.most is None else task.most
    if not task.fixed:
        for text, answered in known.items():
            climber.remember(parse_case(text), answered.ratios)
        seen |= known.keys()
        left -= len(known)

    def visit(case: Case) -> bool:
        """Whether the batch goes on."""
        nonlocal left
        text = format_case(case)
        if text not in seen:
            seen.add(text)
            if (answered := known.get(text)) is not None:
                left -= 1
                climber.remember(case, answered.ratios)
                return left > 0
            if (result := judge(case)) is None:
                return True
            left -= 1
            climber.note(case, result)
            return not session.report(task.subject, result) and left > 0
        return True

    climbs = task.examples // _CLIMBING
    drawn, draws = 0, task.examples - climbs + (not task.simplest)
    for case in drawn_cases(draws):
        drawn += 1
        if (drawn > 1 or task.simplest or task.traced) and not visit(case):
            return
    if not drawn and task.kinds is None and not task.traced:
        raise UsageError(session.toolkit.undrawable(subject, session.device, task.profile))
    for _ in range(_TRIES * climbs):
        neighbour = climber.propose()
        if neighbour is None or session.toolkit.refusal(subject, neighbour) is not None:
            continue
        if not visit(neighbour):
            return


def _means(
    session: Session, subject: Any, task: Batch
) -> tuple[Callable[[int], Iterator[Case]], Callable[[Case], CaseResult | None]]:
    """Draws so many cases, and judges one; where only some kinds are compiled, that gives None for a case that is put off."""
    if task.traced:
        from flashverify.campaign.worker.traced import traced_kinds

        kinds = traced_kinds(session, task.subject)
        return lambda count: kinds.cases(task, count), kinds.drawn
    if task.kinds is None:
        strategy = session.toolkit.strategy(subject, session.device, task.profile)
        return lambda count: fresh(strategy, count, task.seed), lambda case: session.judge(task.subject, case, "fuzz")
    from flashverify.campaign.worker.ahead import judge_compiled

    compiled = ahead_of(session.toolkit).of_kinds(subject, task.kinds)
    return lambda count: fresh(compiled, count, task.seed), lambda case: judge_compiled(session, task.subject, case)


def draw(strategy: SearchStrategy[Case], examples: int, seed_value: int) -> tuple[Case, ...]:
    """`examples` different cases, or fewer where the strategy has no more."""
    return tuple(fresh(strategy, examples, seed_value))


def draw_some(session: Session, subject: Any, examples: int, seed_value: int, profile: str) -> tuple[Case, ...]:
    """`examples` different cases of a subject as large as a profile says, or fewer where it has no more.

    Raises:
        UsageError: it refuses every draw.
    """
    drawn = draw(session.toolkit.strategy(subject, session.device, profile), examples, seed_value)
    if not drawn:
        raise UsageError(session.toolkit.undrawable(subject, session.device, profile))
    return drawn


def fresh(strategy: SearchStrategy[Case], examples: int, seed_value: int) -> Iterator[Case]:
    """Different cases, drawn independently of each other in rounds, the simplest case of all in the first of them alone.

    Of each full round those are left out that add least to the pairs of traits that the others cover.
    """
    seeds, seen, coverage = random.Random(seed_value), dict[str, None](), Coverage()
    barren = 0
    while len(seen) < examples and barren < (_BARREN if seen else _REFUSED):
        found: list[Case] = []
        _round(strategy, found, seeds.getrandbits(64))
        new = {text: case for case in found if (text := format_case(case)) not in seen}
        barren = 0 if new else barren + 1
        kept = coverage.without_least(list(new.values()), _LEFT_OUT if len(new) == _ROUND else 0)
        for case in kept[: examples - len(seen)]:
            seen[format_case(case)] = None
            coverage.add(case)
            yield case


def _round(strategy: SearchStrategy[Case], found: list[Case], seed_value: int) -> None:
    @seed(seed_value)
    @settings(
        max_examples=_ROUND,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def body(case: Case) -> None:
        found.append(case)

    with stable_draws(), contextlib.suppress(Unsatisfiable):  # the subject refuses every draw of this round
        body()
