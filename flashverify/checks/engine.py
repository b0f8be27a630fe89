"""Judging one case: run the subject, ask every check of the plan, collect the answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flashverify.case.materialize import materialize
from flashverify.checks.accuracy import check_accuracy, shape_failures, undefined_elements
from flashverify.checks.determinism import check_determinism
from flashverify.checks.execution import Execution, execute
from flashverify.checks.memory import check_memory
from flashverify.checks.padding import check_padding, has_padding
from flashverify.checks.sanitizer import check_sanitizer, explained
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import CaseResult, OutputStats, Status, Verdict

if TYPE_CHECKING:
    from flashverify.case.arena import Arena
    from flashverify.case.case import Case
    from flashverify.checks.plan import Plan
    from flashverify.subjects.interface import Subject

__all__ = ["judge_case"]


def judge_case(subject: Subject, case: Case, plan: Plan) -> CaseResult:
    """Every verdict about `subject` on `case`.

    A case that the subject does not support gives one `unsupported` verdict. An exception inside the subject is a failure of
    the check `exception`, one inside the harness (a NaN bound, an oracle that cannot be trusted) a verdict `error`.

    Args:
        subject: the kernel under test.
        case: the problem.
        plan: the checks to make.
    """
    started = time.perf_counter()
    judged = _Judgement(subject, case, plan)
    judged.run()
    return CaseResult(
        case=str(case),
        subject=subject.name,
        evidence=subject.evidence(),
        verdicts=tuple(judged.verdicts),
        stats=tuple(judged.stats),
        seconds=round(time.perf_counter() - started, 6),
        warnings=tuple(dict.fromkeys(judged.warnings)),
    )


class _Judgement:
    """The state of judging one case."""

    def __init__(self, subject: Subject, case: Case, plan: Plan) -> None:
        self.subject, self.case, self.plan = subject, case, plan
        self.verdicts: list[Verdict] = []
        self.stats: list[OutputStats] = []
        self.warnings: list[str] = []

    def run(self) -> None:
        reason = self.subject.supports.refusal(self.case)
        if reason is not None:
            self.verdicts.append(Verdict(check="supports", status=Status.UNSUPPORTED, message=reason))
            return
        problem, arena = materialize(self.case, self.subject.device())
        try:
            execution = execute(self.subject, problem)
        except Exception as error:
            self._exception(error)
            return
        shapes = shape_failures(execution)
        if shapes:
            self.verdicts += shapes
            return
        try:
            self._ask(execution, arena)
        except (FlashverifyError, AssertionError) as error:
            text = f"{type(error).__name__}: {error}"
            self.verdicts.append(Verdict(check="harness", status=Status.ERROR, error="self-check", message=text))

    def _ask(self, execution: Execution, arena: Arena) -> None:
        undefined = undefined_elements(execution.problem, self.subject.contract)
        wanted = self.plan.checks
        if "memory" in wanted:
            untouched = self.case.mask.packed is not None and self.subject.contract.padding == "written"
            self._answer("memory", list(check_memory(execution, arena, undefined, untouched=untouched)))
        if "accuracy" in wanted or "nonfinite" in wanted:
            accuracy = check_accuracy(self.subject, execution)
            self.stats += [comparison.stats for comparison in accuracy.comparisons]
            self.warnings += accuracy.warnings
            found = [v for comparison in accuracy.comparisons for v in comparison.verdicts]
            for check in ("accuracy", "nonfinite"):
                if check in wanted:
                    self._answer(check, explained(self.subject, execution, [v for v in found if v.check == check]))
        try:
            if "padding" in wanted and has_padding(self.case):
                self._answer("padding", list(check_padding(self.subject, execution, self.plan.poisons, undefined)))
            if "sanitizer" in wanted and execution.watch is not None:
                self._answer("sanitizer", list(check_sanitizer(self.subject, execution, self.plan.fills, undefined)))
            if "determinism" in wanted:
                self._answer("determinism", list(check_determinism(self.subject, execution, self.plan.variants)))
        except (FlashverifyError, AssertionError):
            raise
        except Exception as error:
            self._exception(error)

    def _answer(self, check: str, found: list[Verdict]) -> None:
        """Keeps the failures; differences that are no failures become warnings; a check without failures passes."""
        failures = [v for v in found if v.status is Status.FAIL]
        self.warnings += [f"{v.check}: {v.error} differs in {v.output}" for v in found if v.status is Status.PASS]
        self.verdicts += failures or [Verdict(check=check, status=Status.PASS)]

    def _exception(self, error: Exception) -> None:
        lines = str(error).strip().splitlines() or [""]
        text = f"{type(error).__name__}: {lines[0][:300]}"
        self.verdicts.append(
            Verdict(check="exception", status=Status.FAIL, error="exception", output=type(error).__name__, message=text)
        )
