"""The hunt for one mutant: judge case after case until one shows it, ask the unmutated subject about that case, make it small."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.plan_name import PROCESS_CHECKS, PlanName
from flashverify.campaign.protocol import Judge
from flashverify.campaign.shrink.shrinker import shrink
from flashverify.case.text import format_case, parse_case
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import Status
from flashverify.mutants.build import build_mutant, line_of
from flashverify.mutants.runner.judging import Clean, MutantProbe, troubles
from flashverify.mutants.runner.records import MutantResult, MutantStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult, Verdict
    from flashverify.mutants.mutant import Mutant

__all__ = ["Hunter", "elements"]

_STILLBORN = 5
"""Cases, spread over all of them, that must raise the same exception before a mutant counts as one that does not run."""
_UNEXPLAINED = (*PROCESS_CHECKS, "exception")
"""Checks whose failures leave no outputs to explain."""
_INVASIVE = ("memory", "sanitizer")
"""Checks whose failures may have left a process in which nothing else should be judged."""
_SHRINK_SHARE = 0.5
"""Of the limit of the search, for shrinking."""


class _DiscreditedError(Exception):
    """The unmutated subject fails a case that showed a mutant."""


@dataclass(frozen=True, slots=True)
class Hunter:
    """Hunts mutants, one after the other, in one process.

    Args:
        probe: the process.
        cases: by subject, in the order of judging, each with its text form.
        folder: where the mutated packages are written.
        clean: verdicts on the unmutated subjects.
        limit: seconds of judging for one mutant; half as many again for shrinking.
        shrinks: whether detecting cases are made minimal.
    """

    probe: MutantProbe
    cases: Mapping[str, Sequence[tuple[Case, str]]]
    folder: Path
    clean: Clean
    limit: float
    shrinks: bool

    def hunt(self, mutant: Mutant, bank: str, equivalent: str = "") -> MutantResult:
        """What became of the mutant; an error of the harness is a result too.

        Args:
            mutant: the defect.
            bank: that it is counted under.
            equivalent: why it is known to change nothing; being found then refutes the reason.

        Raises:
            StoppedError: the run stops.
        """
        found = MutantResult(
            name=mutant.name,
            bank=bank,
            status=MutantStatus.ERROR,
            subject=mutant.subject,
            file=mutant.file,
            modelled_on=mutant.modelled_on,
            semantics=mutant.semantics,
        )
        folder = self.folder / mutant.name
        try:
            found = _with(found, line=line_of(mutant))
            self.probe.warm(mutant.subject)
            found = self._hunt(mutant, build_mutant(mutant, folder), found)
        except (FlashverifyError, _DiscreditedError) as error:
            return _with(found, reason=str(error)[:2000])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if found.check in _INVASIVE:
            self.probe.reset()
        if equivalent and found.status is MutantStatus.FOUND:
            return _with(found, status=MutantStatus.ERROR, reason=f"known to be equivalent, yet found: {equivalent}")
        if equivalent and found.status is MutantStatus.SURVIVED:
            return _with(found, status=MutantStatus.EQUIVALENT, reason=equivalent)
        return found

    def _hunt(self, mutant: Mutant, spec: str, found: MutantResult) -> MutantResult:
        concerned = [text for case, text in self.cases[mutant.subject] if mutant.concerns(case)]
        judged, seconds, harness, asked = 0, 0.0, "", False
        for text in concerned:
            if seconds >= self.limit:
                break
            begun = time.monotonic()
            result = self.probe.ask(Judge(spec, text, "fuzz")).result
            seconds += time.monotonic() - begun
            if result.unsupported is not None:
                continue
            judged += 1
            found = _with(found, cases=judged, seconds=round(seconds, 3))
            harness = harness or self._harness(mutant.subject, text, result)
            raised = _exception(result)
            if raised is not None and not asked:
                asked = True
                if self._stillborn(spec, concerned, raised):
                    return _with(found, status=MutantStatus.INVALID, reason=raised.message)
            verdict = next((v for v in result.failures if counts(mutant, v)), None)
            if verdict is not None and self._repeats(spec, text, verdict):
                self._compare(mutant.subject, text, "fuzz")
                text = result.case_of(verdict)
                found = _with(found, **_seen(verdict), case=text, elements=elements(parse_case(text)))
                return self._conclude(mutant, spec, found, verdict)
        if harness:
            return _with(found, reason=f"the harness could not judge every case: {harness}")
        status = MutantStatus.QUIET if mutant.control else MutantStatus.SURVIVED
        reason = "" if judged else f"none of {len(self.cases[mutant.subject])} cases concerns it"
        if mutant.control and not judged:
            status = MutantStatus.ERROR
        return _with(found, status=status, reason=reason)

    def _conclude(self, mutant: Mutant, spec: str, found: MutantResult, verdict: Verdict) -> MutantResult:
        """The status of a mutant that was seen, with its smallest case and its diagnosis."""
        found = _with(found, status=MutantStatus.FALSE_ALARM if mutant.control else MutantStatus.FOUND)
        if self.shrinks and verdict.check != "hang":  # each smaller case that hangs costs the whole limit
            text = self._shrink(spec, found.case, verdict)
            if text != found.case:
                self._compare(mutant.subject, text, _plan(verdict))
            found = _with(found, minimal=text, elements=elements(parse_case(text)))
        if verdict.check not in _UNEXPLAINED:
            found = _with(found, diagnosis=self._diagnosis(mutant, spec, found.minimal or found.case, verdict))
        return found

    def _diagnosis(self, mutant: Mutant, spec: str, text: str, verdict: Verdict) -> str:
        """The wrong semantics that the harness names; empty where it names none or takes too long."""
        key = verdict.key(mutant.name, parse_case(text).dtype)
        try:
            diagnosis = self.probe.ask(Judge(spec, text, _plan(verdict), diagnose=key)).diagnosis
        except FlashverifyError:
            return ""
        return "" if diagnosis is None else diagnosis.name

    def _compare(self, subject: str, text: str, plan: str) -> None:
        trouble = troubles(self.clean.judge(self.probe, subject, text, plan))
        if trouble:
            raise _DiscreditedError(trouble)

    def _repeats(self, spec: str, text: str, verdict: Verdict) -> bool:
        """Whether a crash or a hang comes again in the fresh process that follows it: earlier mutants may have had a part in it."""
        if verdict.check not in PROCESS_CHECKS:
            return True
        return any(v.check in PROCESS_CHECKS for v in self.probe.ask(Judge(spec, text, "fuzz")).result.failures)

    def _harness(self, subject: str, text: str, result: CaseResult) -> str:
        """Why the harness could not judge the mutant on a case that it can judge the unmutated subject on; empty otherwise."""
        message = next((v.message for v in result.verdicts if v.status is Status.ERROR), "")
        if not message:
            return ""
        clean = self.clean.judge(self.probe, subject, text, "fuzz")
        return "" if any(v.status is Status.ERROR for v in clean.verdicts) else message

    def _stillborn(self, spec: str, texts: list[str], raised: Verdict) -> bool:
        """Whether cases from all over the list raise the same exception, numbers in its message apart."""
        step = max(len(texts) // _STILLBORN, 1)
        asked = 0
        for text in texts[::-step]:
            result = self.probe.ask(Judge(spec, text, "only:memory")).result
            if result.unsupported is None:
                again = _exception(result)
                if again is None or _wording(again) != _wording(raised):
                    return False
                asked += 1
        return asked > 0

    def _shrink(self, spec: str, text: str, verdict: Verdict) -> str:
        """The smallest case with the same check, error and output that the limit allows."""
        smallest, plan = text, _plan(verdict)
        dtype = parse_case(text).dtype
        key = verdict.key("", dtype)
        deadline = time.monotonic() + _SHRINK_SHARE * self.limit
        steps = shrink(parse_case(text))
        candidate = next(steps, None)
        while candidate is not None and time.monotonic() < deadline:
            try:
                result = self.probe.ask(Judge(spec, format_case(candidate), plan)).result
            except FlashverifyError:  # the larger case stands
                break
            fails = any(v.key("", candidate.dtype) == key for v in result.failures)
            smallest = format_case(candidate) if fails else smallest
            try:
                candidate = steps.send(fails)
            except StopIteration:
                candidate = None
        return smallest


def counts(mutant: Mutant, verdict: Verdict) -> bool:
    """Whether a failing verdict shows the mutant: in one of its outputs, any where it names none; a crash and a hang always do."""
    return not mutant.outputs or verdict.output in mutant.outputs or verdict.check in PROCESS_CHECKS


def elements(case: Case) -> int:
    """Elements of q and k."""
    return case.batch * (case.heads_q * case.seq_q + case.heads_kv * case.seq_k) * case.dim_qk


def _plan(verdict: Verdict) -> str:
    return str(PlanName.of_check(verdict.check))


def _exception(result: CaseResult) -> Verdict | None:
    return next((v for v in result.failures if v.check == "exception"), None)


def _wording(verdict: Verdict) -> str:
    return re.sub(r"\d+", "#", verdict.message)


def _seen(verdict: Verdict) -> dict[str, str]:
    return {name: getattr(verdict, name) for name in ("check", "error", "output", "mode", "message")}


def _with(found: MutantResult, **changes: object) -> MutantResult:
    return msgspec.structs.replace(found, **changes)
