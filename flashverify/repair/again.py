"""A repair that was found before, put in place once more: what else it makes right has the same cause."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import execute
from flashverify.interpreter.modes import kernels_so_far, line_by_line
from flashverify.repair.described import shown
from flashverify.repair.exchange import Edit, edited, in_place
from flashverify.repair.functions import executed
from flashverify.repair.placing import lines_instead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.judge.record import Repair
    from flashverify.repair.functions import Ran
    from flashverify.subjects.interface import Subject

__all__ = ["with_repair"]


@contextlib.contextmanager
def with_repair(subject: Subject, case: Case, repair: Repair) -> Iterator[bool]:
    """The subject runs with a repair until the end of the block.

    Args:
        subject: the kernel under test.
        case: on which the changed function runs, such as the one that the repair was found on.
        repair: of the subject; its file is as it was then.

    Yields:
        False where the function does not run on the case or has no such lines: nothing is in place then.

    Raises:
        Exception: what the subject raises on the case.
    """
    ran = next((each for each in _executed(subject, case) if _holds(each, repair)), None)
    edit = None if ran is None else _edit(ran, repair)
    if ran is None or edit is None:
        yield False
        return
    with in_place(ran, edited(ran, edit)):
        yield True


def _executed(subject: Subject, case: Case) -> list[Ran]:
    problem, arena = materialize(case, subject.device())
    try:
        with line_by_line():
            return executed(lambda: execute(subject, problem, memory=False), kernels_so_far)
    finally:
        arena.restore()


def _holds(ran: Ran, repair: Repair) -> bool:
    """Whether the changed line stands in a function."""
    within = ran.node.lineno <= repair.line <= (ran.node.end_lineno or 0)
    return ran.name == repair.function and within and shown(ran.file) == repair.file


def _edit(ran: Ran, repair: Repair) -> Edit | None:
    lines = ran.source.text.split("\n")
    instead = lines_instead(repair, lines)
    if instead is None:
        return None
    count = repair.before.count("\n") + 1
    start = ran.source.position(repair.line, 0)
    end = start + len("\n".join(lines[repair.line - 1 : repair.line - 1 + count]))
    return Edit(start, end, "\n".join(instead))
