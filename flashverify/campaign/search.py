"""The search: Hypothesis draws cases, this judges them.

A failing case never raises inside Hypothesis: it is data, handed up at once, and shrunk later by `campaign.shrink`. So
known defects neither stop a batch nor change what it draws, and a batch is reproducible from its seed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, seed, settings, target

from flashverify.case.text import format_case
from flashverify.judge.verdict import CaseResult, from_hex

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.campaign.events import Batch
    from flashverify.campaign.worker import Session
    from flashverify.case.case import Case

__all__ = ["draw", "search"]


def search(session: Session, task: Batch) -> None:
    """Judge the cases of one batch; each case once, quarantined ones never."""
    seen = set(task.quarantine)
    stopped = False

    def visit(case: Case) -> None:
        nonlocal stopped
        text = format_case(case)
        if stopped or text in seen:
            return
        seen.add(text)
        result = session.judge(task.subject, case, "fuzz")
        stopped = session.report(task.subject, result)
        _aim(result)

    strategy = session.toolkit.strategy(session.subject(task.subject), session.device)
    _explore(strategy, visit, task.examples, task.seed)


def draw(strategy: SearchStrategy[Case], examples: int, seed_value: int) -> tuple[Case, ...]:
    """`examples` different cases, or fewer where the strategy has no more."""
    found: dict[Case, None] = {}
    for attempt in range(5):
        _explore(strategy, lambda case: found.setdefault(case), examples, seed_value + attempt)
        if len(found) >= examples:
            break
    return tuple(found)[:examples]


def _explore(strategy: SearchStrategy[Case], visit: Callable[[Case], object], examples: int, seed_value: int) -> None:
    @seed(seed_value)
    @settings(
        max_examples=max(1, examples),
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def body(case: Case) -> None:
        visit(case)

    body()


def _aim(result: CaseResult) -> None:
    """Let Hypothesis climb towards the bound, per output; a ratio of 0 or without a number says nothing."""
    for stats in {f"{s.output} {s.mode}": s for s in result.stats}.values():
        ratio = from_hex(stats.worst)
        if 0 < ratio < math.inf:
            target(math.log2(ratio), label=f"{stats.output} {stats.mode}")
