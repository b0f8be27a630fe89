"""The check `relations`: what one problem's outputs say about another's, or about themselves, whatever the oracle says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.passes.by_itself import told_by_itself
from flashverify.checks.passes.other_problems import with_other_problem
from flashverify.checks.relations import alone, bounded, doubled, exact, hidden, linear, oracle_free
from flashverify.checks.relations.ground import Ground
from flashverify.checks.spec import CheckSpec, Need

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.checks.passes.known import Known
    from flashverify.checks.relations.spec import RelationSpec
    from flashverify.interpreter.repeats import Launches
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["RELATIONS", "SPEC", "check_relations"]

RELATIONS: tuple[RelationSpec, ...] = (
    *doubled.SPECS,
    *exact.SPECS,
    *alone.SPECS,
    *bounded.SPECS,
    *linear.SPECS,
    *hidden.SPECS,
    *oracle_free.SPECS,
)
"""Every relation there is; a new one is a `RelationSpec` in its file, and a new file a name here."""

_BY_NAME = {spec.name: spec for spec in RELATIONS}


def check_relations(
    subject: Subject,
    base: Execution,
    names: tuple[str, ...],
    known: Known | None = None,
    launches: Launches | None = None,
) -> list[Verdict] | None:
    """Asks relations of a pass.

    Args:
        subject: the kernel under test.
        base: the pass.
        names: of relations.
        known: what the comparison of the pass with the oracle left, where there was one.
        launches: see `BasePass.known`.

    Returns:
        Failing verdicts, whose error class is the relation's name, or those of `accuracy` of a problem that is wrong by itself; None where none of them applies, as to an empty problem or to
        one with NaN or infinities among its inputs.
    """
    ground = Ground(subject, base, known, launches)
    if not _has_elements(subject, base.problem.case) or not ground.finite:
        return None
    found: list[Verdict] = []
    answered = False
    for name in names:
        ground.forget()
        answer = _BY_NAME[name].run(ground)
        if answer is not None:
            answered = True
            told = told_by_itself(subject, base.problem.case, list(answer), ground.asked)
            found += with_other_problem(subject, told, base, ground.passes)
    return found if answered else None


def _has_elements(_subject: Subject, case: Case) -> bool:
    return 0 not in (case.batch, case.seq_q, case.seq_k)


def _run(base: BasePass, names: tuple[str, ...]) -> list[Verdict] | None:
    if base.beyond_oracle:
        names = tuple(spec.name for spec in RELATIONS if spec.oracle_free)
    compared = None if base.compared is None else base.compared.known
    return check_relations(base.subject, base.execution, names, compared, base.known)


SPEC = CheckSpec(
    name="relations",
    question="Do outputs keep to what follows from other outputs: bit for bit, within bounds, or at any size without an oracle?",
    needs=(Need.PASSES, Need.ORACLE),
    questions=RELATIONS,
    errors=tuple(spec.error for spec in RELATIONS),
    run=_run,
    applies=lambda subject, case: case.quantised is None and _has_elements(subject, case),
    of_right_passes=True,
    beyond_oracle=True,
    shared_out=True,
)
