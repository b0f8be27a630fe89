"""Whether two failures come and go together: each finding's case is run again as the other's, and with parts taken away."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any

from flashverify.campaign.causes.needs import small
from flashverify.campaign.causes.sighting import shown
from flashverify.campaign.causes.symptoms import FAR, OF_BITS, REPEAT, VALUES, Symptoms, symptom
from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.worker.neighbours import grown, simpler
from flashverify.case.case import Grad, Values
from flashverify.case.changes import change
from flashverify.case.text import format_case, parse_case
from flashverify.judge.verdict import from_hex
from flashverify.outputs import BACKWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.campaign.causes.symptoms import Symptom
    from flashverify.campaign.protocol import Attribute, Compare
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult

__all__ = ["Replays"]

_TRIED, _NEEDED, _ENOUGH = 16, 2, 4
"""Simpler cases that are tried, and of those on which the finding is gone, how many are needed and used."""
_FEW = 20
"""Rows and keys with which most defects show."""


class Replays:
    """Runs cases again; the answers are kept while one finding is asked about.

    Args:
        session: judges them.
        task: names the finding.
    """

    def __init__(self, session: Session, task: Attribute | Compare) -> None:
        self._session, self._task = session, task
        self._mine = symptom(task.cause.key)
        self._symptoms = {self._mine, *(symptom(folded.key) for folded in task.cause.folded)}
        self._case = parse_case(task.cause.case)
        self._checks = {task.cause.key.check, *(sighting.key.check for sighting in task.asked)}
        self._judged: dict[tuple[str, str], CaseResult] = {}
        self._gone: dict[str, list[Case]] = {}

    def why(self, sighting: Sighting) -> str | None:
        """Why a failure has the cause of the finding, in words; empty where something speaks against it, None where nothing says."""
        other, case = symptom(sighting.key), parse_case(sighting.case)
        if other == self._mine:
            return self._in_another_dtype(sighting, case)
        if self._unrepeatable(sighting, case):
            return "the results differ from run to run"
        if not self.shown_with(sighting, case):
            return None if self._symptoms & shown(sighting) else ""
        for carried in self._carried(case.dtype, backward=other[2] in BACKWARD, like=case):
            if other in self.look(carried, other[0]).own:
                small_errors = small(self._task.cause.verdict) and small(sighting.verdict)
                together = self._together(carried, other, errors_are_small=small_errors)
                return "comes and goes with it" if together else "" if together is False else None
        return None

    def _in_another_dtype(self, sighting: Sighting, case: Case) -> str | None:
        """Both ways: the finding's case fails in the dtype of the other, whose case fails in that of the finding, if that is accepted."""
        back = self._as(case, dtype=self._case.dtype)
        if back is not None and self._mine not in self.look(back, self._mine[0]).seen:
            return ""
        for carried in self._carried(case.dtype, backward=False):
            if self._mine in self.look(carried, self._mine[0]).seen:
                return f"its minimal case fails in the same way in {sighting.key.dtype}"
        return None

    def _unrepeatable(self, sighting: Sighting, case: Case) -> bool:
        if self._mine[:2] != REPEAT or sighting.key.check not in OF_BITS:
            return False
        seen = self.look(case, REPEAT[0]).seen
        return {self._mine, (*REPEAT, sighting.key.output)} <= seen

    def shown_with(self, sighting: Sighting, case: Case) -> bool:
        """Whether the case of the other failure shows the finding too, if need be in its dtype and with plain values."""
        if self._mine in shown(sighting):
            return True
        own, plain = self._case.dtype, Values(seed=case.values.seed)
        twins = (case, self._as(case, dtype=own), self._as(case, dtype=own, values=plain))
        return any(twin is not None and self._mine in self.look(twin, self._mine[0]).seen for twin in twins)

    def at_work(self, case: Case, *, sizes: bool) -> bool:
        """Whether the finding shows where a case has plain values or its own, a dO that is not 0, or its own dtype.

        Args:
            case: one that does not show it.
            sizes: whether more rows and keys count too: what is no comparison of values shows on a case that is too small for wrong values.
        """
        plain, grad = Values(seed=case.values.seed), case.grad
        own = replace(self._case.values, seed=case.values.seed, edits=())
        if self._mine[2] in BACKWARD:
            grad = Grad(dlse=True, do="dense" if grad.do == "zero" or not grad.backward else grad.do)
        larger = change(case, seq_q=max(case.seq_q, _FEW), seq_k=max(case.seq_k, _FEW)) if sizes else None
        return any(
            twin is not None and self._mine in self.look(twin, self._mine[0]).seen
            for like, dtype in product((case, larger), dict.fromkeys((self._case.dtype, case.dtype)))
            if like is not None
            for values in dict.fromkeys((plain, own))
            for twin in (self._as(like, dtype=dtype, values=values, grad=grad),)
        )

    def far_off(self, case: Case, of: Symptom) -> bool:
        """Whether an output is finite and far outside its bound where the case has plain values, if need be with the usual scale."""
        plain = self._as(case, dtype=case.dtype, values=Values(seed=case.values.seed))
        usual = None if plain is None or plain.scale is None else self._as(plain, dtype=case.dtype, scale=None)
        return any(twin is not None and self._is_far_off(twin, of) for twin in (plain, usual))

    def _is_far_off(self, plain: Case, of: Symptom) -> bool:
        found = self.judge(plain, of[0]).failures
        lost = ("nonfinite", of[2]) in {(v.check, v.output) for v in self.judge(plain, "nonfinite").failures}
        return not lost and any(symptom(v) == of and v.ratio and from_hex(v.ratio) >= FAR for v in found)

    def _carried(self, dtype: str, *, backward: bool, like: Case | None = None) -> Iterator[Case]:
        """The finding's case in another dtype, with a backward where that is asked for: as it is, then with plain values.

        Args:
            dtype: of the cases.
            backward: whether they have one.
            like: modifiers of the logits are taken over from it, for gradients that exist with them alone; None takes over nothing.
        """
        grad = Grad(dlse=True) if backward and not self._case.grad.backward else self._case.grad
        logits = [self._case.logits] if like is None else [self._case.logits, like.logits]
        for modifiers, values in product(logits, (self._case.values, Values(seed=self._case.values.seed))):
            twin = self._as(self._case, dtype=dtype, values=values, grad=grad, logits=modifiers)
            if twin is not None and self._mine in self.look(twin, self._mine[0]).seen:
                yield twin

    def _together(self, case: Case, other: Symptom, *, errors_are_small: bool) -> bool | None:
        """Whether the other failure is gone wherever a simpler case does not show the finding; None where nothing says.

        Args:
            case: that shows both.
            other: the other failure.
            errors_are_small: whether both are values outside their bounds by little: on which case such a value is within its bound is chance.
        """
        gone = [g for g in self._without(case) if self.look(g, other[0]).asked(other)]
        if any(other in self.look(g, other[0]).own for g in gone):
            return None if errors_are_small else False
        return True if len(gone) >= _NEEDED else None

    def _without(self, case: Case) -> list[Case]:
        """Cases with a part less than `case` that do not show the finding."""
        text = format_case(case)
        if text not in self._gone:
            changed = chain(grown(case), islice(simpler(case), _TRIED))
            looks = ((s, self.look(s, self._mine[0])) for s in changed if self.accepted(s))
            self._gone[text] = list(islice((s for s, look in looks if self._is_gone(look)), _ENOUGH))
        return self._gone[text]

    def _is_gone(self, look: Symptoms) -> bool:
        return look.asked(self._mine) and self._mine not in look.seen

    def _as(self, case: Case, *, dtype: str, **changes: Any) -> Case | None:
        """The case in another dtype; None where the subject does not accept it."""
        precision = case.precision if dtype == "fp32" else "ieee"
        found = change(case, dtype=dtype, precision=precision, **changes)
        return found if found is not None and self.accepted(found) else None

    def accepted(self, case: Case) -> bool:
        """Whether the subject takes the case."""
        subject = self._session.subject(self._task.cause.subject_spec)
        return self._session.toolkit.refusal(subject, case) is None

    def look(self, case: Case, check: str) -> Symptoms:
        """What a case shows when a check is asked in full; those of values go together where one is about NaN or infinities."""
        checks = VALUES if check in VALUES and "nonfinite" in self._checks | {check} else (check,)
        return Symptoms(*(self.judge(case, each) for each in checks))

    def judge(self, case: Case, check: str) -> CaseResult:
        """The verdicts of one check; each is made once."""
        key = (format_case(case), str(PlanName.of_check(check)))
        if key not in self._judged:
            self._judged[key] = self._session.judge(self._task.cause.subject_spec, case, key[1])
        return self._judged[key]
