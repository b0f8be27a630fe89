"""Whether a cause that is known accounts for another failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.conditions import parse
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.opening import first_scene, unwritten
from flashverify.diagnosis.padding_experiment import PADDINGS, padding_reaches
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.judge.record import Diagnosis
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["attributed"]


def attributed(subject: Subject, case: Case, verdict: Verdict, diagnosis: Diagnosis) -> bool:
    """Whether what `diagnosis` names accounts for everything that is wrong with `subject` on `case`.

    Args:
        subject: the kernel under test.
        case: where it fails.
        verdict: the failing verdict.
        diagnosis: of another failure of the same subject; where it has conditions, its semantics counts where they hold.

    Returns:
        False where it names nothing, where the case is too large for hypotheses, where its conditions do not hold, or where
        outputs are wrong in another way.

    Raises:
        UsageError: a condition of the diagnosis cannot be parsed.
        Exception: whatever the subject raises on `case`.
    """
    conditions = tuple(map(parse, diagnosis.conditions))
    found = first_scene(subject, case, verdict) if diagnosis.name else None
    if found is None:
        return False
    scene, failing = found
    if diagnosis.name == "not-written":
        return bool(unwritten(scene, failing))
    if diagnosis.name in PADDINGS:
        reached = padding_reaches(subject, scene.case)
        return reached is not None and reached[0] == diagnosis.name
    if work(scene.case) > LARGEST:
        return False
    known = (Claim(semantics, conditions) for semantics in SEMANTICS if semantics.name == diagnosis.name)
    return any(claim.answer(scene) in (Answer.CLEAR, Answer.EXPLAINED) for claim in known)
