"""Whether the cause of a finding accounts for other failures: by its diagnosis, otherwise by what happens when cases are run again."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.campaign.causes.accesses import access, accesses
from flashverify.campaign.causes.diagnoses import MADE_RIGHT, OF_VALUES, UNWRITTEN, about_values, named
from flashverify.campaign.causes.elsewhere import IN_THE_OTHER_PROBLEM, elsewhere
from flashverify.campaign.causes.ends import same_end
from flashverify.campaign.causes.hidden import bucket_of
from flashverify.campaign.causes.sighting import may_follow, sightings_of
from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES, VALUES, consequences, symptom
from flashverify.campaign.protocol import Attributed, Shown, Started
from flashverify.campaign.shrink.shrinker import shrink
from flashverify.campaign.worker.neighbours import without_others
from flashverify.campaign.worker.repaired import Asked, fails_with_repair
from flashverify.campaign.worker.replays import Replays
from flashverify.case.changes import change
from flashverify.case.text import format_case, parse_case
from flashverify.judge.record import Diagnosis
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.campaign.causes.symptoms import Symptom
    from flashverify.campaign.protocol import Attribute, Compare
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult, Verdict

__all__ = ["Cause", "attribute"]

_REDUCED = 10
"""Simpler cases that are tried."""
_IN_VAIN = 6
"""Failures in a row that trials do not account for, after which the others are left to another cause."""
_OF_ACCESSES = ("sanitizer", "addresses")
"""Checks whose messages name an access."""
_WITH_REPAIR = 10.0
"""Seconds for one case with the repair of a finding in place."""


def attribute(session: Session, task: Attribute) -> None:
    """Emit `Attributed` for each failure that is asked about, until the limit."""
    end = math.inf if task.limit is None else time.monotonic() + task.limit
    cause = Cause(session, task)
    ask = cause.by_trials if task.trials else cause.at_once
    vain = 0
    for sighting in task.asked:
        try:
            why = ask(sighting) if vain < _IN_VAIN else None
        except Exception as error:  # what cannot be told apart from an error stays a finding of its own
            print(f"attribution failed: {type(error).__name__}: {error}", file=sys.stderr)
            why = None
        if task.trials or why:
            vain = 0 if why else vain + task.trials
            at_work = cause.at_work(sighting) if sighting.alone and not why else None
            session.emit(Attributed(task.cause.key, sighting, why or "", told=why is not None, at_work=at_work))
        if time.monotonic() > end:
            return


class Cause:
    """The finding that others are held against."""

    def __init__(self, session: Session, task: Attribute | Compare) -> None:
        self._session, self._finding = session, task.cause
        self._subject = session.subject(task.cause.subject_spec)
        self._replays = Replays(session, task)
        self._denied: set[str] = set()
        self._told = session.told.setdefault(task.cause.key, {})
        self._buckets = {bucket_of(key) for key in (task.cause.key, *(folded.key for folded in task.cause.folded))}
        self._symptoms = set(map(symptom, self._buckets))
        self._accesses = accesses(task.cause)

    def at_once(self, sighting: Sighting) -> str:
        """Why it accounts for a failure, in words, with one run at most; empty where that does not say."""
        check, case = sighting.key.check, parse_case(sighting.case)
        if check in _OF_ACCESSES and access(sighting.verdict.message) in self._accesses:
            return "the same access of memory"
        if (same := same_end(self._finding.verdict, sighting.verdict)) is not None:
            return same
        if elsewhere(sighting.key, sighting.verdict, self._buckets):
            return self._in_the_other_problem(sighting)
        plain = sighting.verdict if check in TOLD_BY_VALUES else self._plain(sighting) if check in OF_VALUES else None
        if plain is not None and sighting.case in self._denied:
            return ""  # what does not account for the clearest output of a case rarely accounts for another one
        words = "the same diagnosis" if plain is not None and self._attributed(case, plain) else self._follows(sighting)
        if words:
            self._symptoms.add(symptom(sighting.key))
        elif plain is not None:
            self._denied.add(sighting.case)
        return words

    def _in_the_other_problem(self, sighting: Sighting) -> str:
        """Why a failure of a check that compares two problems is its work; a name would have to be asked about that problem, so that it is set aside."""
        if named(self._finding):
            self._session.emit(Shown(self._finding.key, (sighting.key,), IN_THE_OTHER_PROBLEM, sure=False))
            return ""
        self._symptoms.add(symptom(sighting.key))
        return IN_THE_OTHER_PROBLEM

    def by_trials(self, sighting: Sighting) -> str | None:
        """The same, None where nothing says, by what happens when the case is made simpler, and when both cases are run in other ways."""
        case, owned = parse_case(sighting.case), bucket_of(sighting.key) in self._buckets
        if (same := same_end(self._finding.verdict, sighting.verdict)) is not None:
            return same
        if (repaired := self._by_repair(sighting)) is not None:
            return repaired
        asked = about_values(sighting.key)
        answer = self._attributed(case, sighting.verdict) if asked else None
        told = answer is not None
        words: str | None = "the same diagnosis" if answer else self._follows(sighting)
        words = words or (self._reduced(sighting, case) if told else "")
        if not words and owned and not told:
            words = "shown together" if self._replays.shown_with(sighting, case) else ""
        elif not words and not owned and not (told and symptom(sighting.key) == symptom(self._finding.key)):
            found = self._replays.why(sighting)
            words = found or self._overflows(sighting, case) or found
        if words:
            self._symptoms.add(symptom(sighting.key))
        return words

    def _by_repair(self, sighting: Sighting) -> str | None:
        """What the repair of the finding says, in words that are empty where the failure is still there; None where it says nothing."""
        asked = Asked(sighting.case, sighting.key.check, sighting.key.output)
        (fails,) = fails_with_repair(self._session, self._finding, [asked], _WITH_REPAIR)
        if fails is False:
            self._symptoms.add(symptom(sighting.key))
        return None if fails is None else "" if fails else MADE_RIGHT

    def _overflows(self, sighting: Sighting, case: Case) -> str:
        """Whether a value that is not finite is one of an output that a finding without a name makes far wrong with other values, in words."""
        accuracy = ("accuracy", "bound", sighting.key.output)
        asked = sighting.key.check == "nonfinite" and not named(self._finding) and accuracy in self._symptoms
        return "far off there with other values" if asked and self._replays.far_off(case, accuracy) else ""

    def at_work(self, sighting: Sighting) -> bool:
        """Whether the finding shows with other values on every case on which a failure was seen without it."""
        sizes = sighting.key.check not in TOLD_BY_VALUES
        return all(self._replays.at_work(parse_case(text), sizes=sizes) for text in sighting.alone)

    def _attributed(self, case: Case, verdict: Verdict) -> bool | None:
        diagnosis = self._finding.diagnosis
        if diagnosis is None or not diagnosis.name:
            return None
        asked = (format_case(case), verdict.check, verdict.output)
        if asked not in self._told:
            self._session.emit(Started())
            self._told[asked] = self._session.toolkit.attributed(self._subject, case, verdict, diagnosis)
        return self._told[asked]

    def _reduced(self, sighting: Sighting, case: Case) -> str:
        """Whether the diagnosis accounts for the same failure of a simpler case: with many parts at once a semantics says too little."""
        bucket, finite = sighting.key, change(case, values=replace(case.values, edits=()))
        # A bucket that belongs to the cause already is split only if nothing of the cause is left on simpler cases.
        accepted = self._symptoms if bucket in self._buckets else {symptom(bucket)}
        edited = finite is not None and finite != case and self._replays.accepted(finite)
        if edited and finite is not None and self._told_of(sighting, finite, accepted)[0]:
            return "the same diagnosis without the edited values"
        bare = without_others(
            case, parse_case(self._finding.case)
        )  # another cause may be at work in what this one does not need
        if bare is not None and self._replays.accepted(bare) and self._told_of(sighting, bare, accepted)[0]:
            return "the same diagnosis without the parts that it does not need"
        steps = shrink(case)
        candidate = next(steps, None)
        for _ in range(_REDUCED):
            if candidate is None:
                break
            told, failures = self._told_of(sighting, candidate, accepted)
            if told:
                return "the same diagnosis on a simpler case"
            try:
                candidate = steps.send(symptom(bucket) in map(symptom, failures))
            except StopIteration:
                break
        return ""

    def _told_of(
        self, sighting: Sighting, case: Case, accepted: set[Symptom]
    ) -> tuple[bool | None, tuple[Verdict, ...]]:
        """Whether the diagnosis accounts for a failure of a simpler case that is one of `accepted`, and all that fails there."""
        result = self._replays.judge(case, sighting.key.check)
        failures = result.failures
        shown = [v for v in failures if symptom(v) in accepted and not self._only_follows(sighting, v, result)]
        return bool(shown) and self._attributed(case, shown[0]), failures

    def _only_follows(self, sighting: Sighting, verdict: Verdict, result: CaseResult) -> bool:
        """Whether a failure may only follow on a simpler case, though it is wrong in its own right on the case that is asked about."""
        seen = sightings_of(result).get(verdict.key(result.subject, parse_case(result.case).dtype))
        return not may_follow(sighting) and seen is not None and may_follow(seen)

    def _plain(self, sighting: Sighting) -> Verdict | None:
        """That the same output of the case itself is wrong too."""
        output = sighting.key.output
        return next((v for v in sighting.failures if v.check in VALUES and v.output == output), None)

    def _follows(self, sighting: Sighting) -> str:
        """Whether a gradient is wrong only because O, the LSE or delta is, for which the cause accounts."""
        if sighting.key.check not in VALUES:
            return ""
        if self._follows_from_delta(sighting):
            return "follows from the wrong delta"
        if self._never_written(sighting):
            return "nobody writes these elements"
        if self._of_such_weights(sighting):
            return "follows from weights that are not finite, as dV does"
        words = consequences(sighting.failures, sighting.given).get(sighting.key.output, "")
        forward = [v for v in sighting.failures if v.check in VALUES and v.output in FORWARD]
        if not words or not forward:
            return ""
        told = [self._attributed(parse_case(sighting.case), verdict) for verdict in forward]
        known = [symptom(verdict) in self._symptoms for verdict in forward]
        return words if all(known if None in told else told) else ""

    def _follows_from_delta(self, sighting: Sighting) -> bool:
        delta = [v for v in sighting.failures if v.check in VALUES and v.output == "delta"]
        if not any(symptom(v) in self._symptoms for v in delta):
            return False
        self._session.emit(Started())
        case, output = parse_case(sighting.case), sighting.key.output
        return self._session.toolkit.follows_from_delta(self._subject, case, output)

    def _never_written(self, sighting: Sighting) -> bool:
        """Whether the wrong elements are some that nobody writes, and the cause leaves elements of that output unwritten."""
        output = sighting.key.output
        unwritten = ("memory", "unwritten", output)
        if unwritten not in self._symptoms or unwritten not in map(symptom, sighting.failures):
            return False
        self._session.emit(Started())
        case, seen = parse_case(sighting.case), Diagnosis(name=UNWRITTEN, sentence="")
        return bool(self._session.toolkit.attributed(self._subject, case, sighting.verdict, seen))

    def _of_such_weights(self, sighting: Sighting) -> bool:
        """Whether dK is not finite on a case on which the cause accounts for a dV that is not: both are made of the same weights."""
        if (sighting.key.check, sighting.key.output) != ("nonfinite", "dk"):
            return False
        beside = [v for v in sighting.failures if v.check == "nonfinite" and v.output == "dv"]
        told = [self._attributed(parse_case(sighting.case), verdict) for verdict in beside[:1]]
        return any(symptom(v) in self._symptoms for v in beside) if told == [None] else told == [True]
