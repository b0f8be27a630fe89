"""Judging one case: run the subject, ask every check of the plan, collect the answers."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import shape_failures
from flashverify.checks.passes.base_pass import BasePass
from flashverify.checks.passes.execution import execute
from flashverify.checks.registry import CHECK_SPECS, error_class
from flashverify.errors import FlashverifyError, SelfCheckError
from flashverify.judge.verdict import CaseResult, Status, Verdict
from flashverify.launching.compilations import NotCompiled
from flashverify.subjects.blame import raised_by_subject, traceback_text

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.checks.plan import Plan
    from flashverify.checks.spec import CheckSpec
    from flashverify.interpreter.repeats import Launches
    from flashverify.judge.quantisation import QuantisationError
    from flashverify.subjects.interface import Subject

__all__ = ["judge_case"]


_NO_MEMORY = "OutOfMemoryError"
_MANY_SCORES = 1 << 28
"""Scores, rows times keys of all heads, from which on a subject that holds them all may run out of memory: a GiB in fp32."""


def _scores(case: Case) -> int:
    return case.batch * case.heads_q * case.seq_q * case.seq_k


def judge_case(subject: Subject, case: Case, plan: Plan) -> CaseResult:
    """Every verdict about `subject` on `case`.

    A case that the subject does not support gives one `unsupported` verdict, and so does one of 2^28 scores or more that leaves a GPU
    without memory. An exception inside the subject is a failure of
    the check `exception`, one inside the harness (a NaN bound, an oracle that cannot be trusted) a verdict `error`. Of a case
    beyond `flashverify.checks.passes.base_pass.ORACLE_LIMIT` the oracle judges a part, which `CaseResult.sampled` names. Where launches may
    not compile, a check whose passes ask for a kernel that is missing is left out, and `CaseResult.unasked` names it.

    Args:
        subject: the kernel under test.
        case: the problem.
        plan: the checks to make.

    Raises:
        NotCompiled: launches may not compile, and a kernel of the case itself is missing.
    """
    started = time.perf_counter()
    judged = _Judgement(subject, case, plan)
    judged.run()
    compared = None if judged.base is None else judged.base.compared
    warnings = () if compared is None else compared.warnings
    return CaseResult(
        case=str(case),
        subject=subject.name,
        evidence=subject.evidence(),
        verdicts=tuple(judged.verdicts),
        stats=() if compared is None else tuple(comparison.stats for comparison in compared.comparisons),
        seconds=round(time.perf_counter() - started, 6),
        warnings=tuple(dict.fromkeys((*warnings, *judged.remarks))),
        sampled=None if compared is None else compared.sampled,
        quantisation=judged.quantisation(),
        unasked=tuple(judged.unasked),
    )


class _Judgement:
    """The state of judging one case."""

    def __init__(self, subject: Subject, case: Case, plan: Plan) -> None:
        self.subject, self.case, self.plan = subject, case, plan.for_case(case)
        self.base: BasePass | None = None
        self.verdicts: list[Verdict] = []
        self.remarks: list[str] = []
        self.unasked: list[str] = []

    def run(self) -> None:
        reason = self.subject.supports.refusal(self.case)
        if reason is not None:
            self.verdicts.append(Verdict(check="supports", status=Status.UNSUPPORTED, message=reason))
            return
        problem, arena = materialize(self.case, self.subject.device())
        known = self._launches()
        try:
            execution = execute(self.subject, problem, kept=known)
        except Exception as error:
            if type(error).__name__ == _NO_MEMORY and _scores(self.case) >= _MANY_SCORES:
                reason = f"a GPU has no memory for it: {str(error).splitlines()[0][:200]}"
                self.verdicts.append(Verdict(check="supports", status=Status.UNSUPPORTED, message=reason))
                return
            self._blame(error, "the first pass")
            return
        shapes = shape_failures(execution)
        if shapes:
            self._keep(shapes)
            return
        plan = self.plan
        self.base = BasePass(self.subject, execution, arena, plan.calls, plan.configs, plan.reported, known)
        try:
            self._ask(self.base)
        except (FlashverifyError, AssertionError) as error:
            text = f"{type(error).__name__}: {error}"
            self.verdicts.append(Verdict(check="harness", status=Status.ERROR, error="self-check", message=text))

    def _launches(self) -> Launches | None:
        """Room for the launches of the base pass, where passes of a question may load the same."""
        loaded = sys.modules.get("flashverify.interpreter.repeats")
        if loaded is None or not any(
            spec.name in self.plan.checks
            and any(question.loads_alike for question in spec.asked(self.plan.asked(spec.name)))
            and spec.applies(self.subject, self.case)
            for spec in CHECK_SPECS
        ):
            return None
        found: Launches = loaded.Launches()
        return found

    def _ask(self, base: BasePass) -> None:
        watch = base.execution.watch
        taken = self.plan.spare if watch is not None and watch.lanes else ()
        for spec in CHECK_SPECS:
            if not self._due(spec, base):
                continue
            names = self._names(spec, taken)
            try:
                answer = spec.run(base, names)
            except NotCompiled:
                self.unasked.append(spec.name)
                continue
            except (FlashverifyError, AssertionError):
                raise
            except Exception as error:
                self._blame(error, f"the check {spec.name}")
                return
            if answer is not None:
                self._answer(spec, answer)

    def _due(self, spec: CheckSpec, base: BasePass) -> bool:
        """Whether the check is asked at all."""
        if spec.name not in self.plan.checks or (base.beyond_oracle and not spec.beyond_oracle):
            return False
        return not (self._wrong and spec.of_right_passes) and spec.applies(self.subject, self.case)

    def _names(self, spec: CheckSpec, taken: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
        """The questions that the check puts."""
        idle = {question.name for question in spec.questions if question.of_right_passes} if self._wrong else set()
        return tuple(name for name in self.plan.asked(spec.name) if (spec.name, name) not in taken and name not in idle)

    def quantisation(self) -> tuple[QuantisationError, ...]:
        """What quantisation itself costs, of a quantised case under a plan that asks everything."""
        from flashverify.checks.quantisation import quantisation_errors

        if self.base is None or self.case.quantised is None or self.plan.thorough is None or self.base.beyond_oracle:
            return ()
        return quantisation_errors(self.base.execution.problem)

    @property
    def _wrong(self) -> bool:
        """Whether the base pass is outside its bounds."""
        return any(v.status is Status.FAIL and v.check in ("accuracy", "nonfinite") for v in self.verdicts)

    def _answer(self, spec: CheckSpec, answer: list[Verdict]) -> None:
        """Keeps what is no pass; differences that are no failures become warnings; a check that found nothing passes."""
        self.remarks += [spec.remark(v) for v in answer if v.status is Status.PASS]
        self._keep([v for v in answer if v.status is not Status.PASS] or [Verdict(check=spec.name, status=Status.PASS)])

    def _keep(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            if verdict.status is Status.FAIL and error_class(verdict.check, verdict.error) is None:
                raise SelfCheckError(f"{verdict.check} declares no class of failure {verdict.error!r}")
        self.verdicts += verdicts

    def _blame(self, error: Exception, where: str) -> None:
        """A failure where the subject raised it, an error of the harness otherwise."""
        kind, lines = type(error).__name__, str(error).strip().splitlines() or [""]
        text, trace = f"{kind}: {lines[0][:300]}", traceback_text(error)
        if raised_by_subject(error):
            found = Verdict(check="exception", status=Status.FAIL, error="exception", output=kind, message=text)
        else:
            text = f"the harness failed in {where}: {text}"
            found = Verdict(check="harness", status=Status.ERROR, error="exception", message=text)
        self._keep([msgspec.structs.replace(found, traceback=trace)])
