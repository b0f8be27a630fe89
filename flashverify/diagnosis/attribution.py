"""Whether a cause that is known accounts for another failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.concerning import concerns
from flashverify.diagnosis.conditions import parse
from flashverify.diagnosis.families import canonical
from flashverify.diagnosis.mixing import alternatives
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.opening import first_scene, unwritten
from flashverify.diagnosis.padding_experiment import PADDINGS, padding_reaches
from flashverify.diagnosis.trials import work
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.hypothesis import Semantics
    from flashverify.diagnosis.observation import Scene
    from flashverify.judge.record import Diagnosis
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["attributed"]

_OF_KEYS = frozenset({"dk", "dv"})


def attributed(
    subject: Subject, case: Case, verdict: Verdict, diagnosis: Diagnosis, *, alone: bool = False
) -> bool | None:
    """Whether what `diagnosis` names accounts for everything that is wrong with `subject` on `case`.

    Args:
        subject: the kernel under test.
        case: where it fails.
        verdict: the failing verdict.
        diagnosis: of another failure of the same subject; where it has conditions, its semantics counts where they hold. The same mistake
            in another part of the case counts too.
        alone: whether only the output of `verdict` is to be accounted for; a gradient that is right given the subject's own O and LSE
            is accounted for with these.

    Returns:
        False where its conditions do not hold, or where outputs are wrong in another way. None where it has no say: it names nothing,
        nothing fails that hypotheses are about, its semantics does not exist on `case`, the case is too large for hypotheses, or the
        output is a gradient and the O or LSE beside it is wrong in another way too. False, not None, where its semantics leaves the output
        as it is: it is about the other one of O and the LSE, or of dK and dV.

    Raises:
        UsageError: a condition of the diagnosis cannot be parsed.
        Exception: whatever the subject raises on `case`.
    """
    conditions = tuple(map(parse, diagnosis.conditions))
    if verdict.check == "accuracy" and verdict.output in diagnosis.beside:
        return False
    if diagnosis.name in PADDINGS:
        reached = padding_reaches(subject, case)
        return reached is not None and reached[0] == diagnosis.name
    found = first_scene(subject, case, verdict) if diagnosis.name else None
    if found is None:
        return None
    scene, every = found
    failing = _concerned(every, verdict.output) if alone else every
    if diagnosis.name == "not-written":
        return True if unwritten(scene, failing) else None  # what is made of it need not be unwritten
    if work(scene.case) > LARGEST:
        return None
    known = [semantics for semantics in SEMANTICS if canonical(semantics.name, diagnosis.name)]
    telling = [s for s in known if failing.keys() <= set(s.outputs) and alternatives(s, scene)]
    if not telling:
        return False if _left_alone(known, verdict.output) else None
    if _explained(telling, conditions, scene, failing):
        return True
    forward = {name: every[name] for name in FORWARD if name in every}
    beside = forward and not failing.keys() & forward.keys()
    return None if beside and not _explained(telling, conditions, scene, forward) else False


def _left_alone(known: list[Semantics], output: str) -> bool:
    """Whether a semantics changes the other one of O and the LSE, or of dK and dV, or gradients alone and this is O or the LSE."""
    outputs = {name for semantics in known for name in semantics.outputs}
    others = outputs if output in FORWARD else outputs & _OF_KEYS if output in _OF_KEYS else set()
    return output not in outputs and bool(others)


def _explained(
    telling: Iterable[Semantics], conditions: tuple[Condition, ...], scene: Scene, failing: Iterable[str]
) -> bool:
    accepted, names = (Answer.CLEAR, Answer.EXPLAINED), frozenset(failing)
    return any(Claim(s, conditions).answer(scene, names) in accepted and concerns(s, scene, names) for s in telling)


def _concerned(failing: dict[str, Tensor], output: str) -> dict[str, Tensor]:
    """Of what fails the output itself; where it does not fail by itself, O and the LSE, which it is computed from."""
    if output in failing:
        return {output: failing[output]}
    forward = {name: failing[name] for name in FORWARD if name in failing}
    return forward or failing
