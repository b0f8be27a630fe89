"""Whether a cause that is known accounts for another failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.diagnose import first_scene, fit_of, unwritten
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.padding_experiment import PADDINGS, padding_reaches
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.judge.record import Diagnosis
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["attributed"]


def attributed(subject: Subject, case: Case, verdict: Verdict, diagnosis: Diagnosis, *, alone: bool = False) -> bool:
    """Whether what `diagnosis` names accounts for everything that is wrong with `subject` on `case`.

    Args:
        subject: the kernel under test.
        case: where it fails.
        verdict: the failing verdict.
        diagnosis: of another failure of the same subject.
        alone: whether only the output of `verdict` is to be accounted for; a gradient that is right given the subject's own O and LSE
            is accounted for with these.

    Returns:
        False where it names nothing, where the case is too large for hypotheses, or where outputs are wrong in another way.

    Raises:
        Exception: whatever the subject raises on `case`.
    """
    found = first_scene(subject, case, verdict) if diagnosis.name else None
    if found is None:
        return False
    scene, failing = found
    if alone:
        failing = _concerned(failing, verdict.output)
    if diagnosis.name == "not-written":
        return bool(unwritten(scene, failing))
    if diagnosis.name in PADDINGS:
        reached = padding_reaches(subject, scene.case)
        return reached is not None and reached[0] == diagnosis.name
    if scene.case.batch * scene.case.heads_q * scene.case.seq_q * scene.case.seq_k > LARGEST:
        return False
    known = (semantics for semantics in SEMANTICS if semantics.name == diagnosis.name)
    return any(fit_of(semantics, scene, failing) is not None for semantics in known)


def _concerned(failing: dict[str, Tensor], output: str) -> dict[str, Tensor]:
    """Of what fails the output itself; where it does not fail by itself, O and the LSE, which it is computed from."""
    if output in failing:
        return {output: failing[output]}
    forward = {name: failing[name] for name in FORWARD if name in failing}
    return forward or failing
