"""Judging one case: run the subject, ask every check of the plan, collect the answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import check_accuracy, shape_failures, undefined_elements
from flashverify.checks.config import check_config
from flashverify.checks.counting import count_masks
from flashverify.checks.derived_problems import work
from flashverify.checks.determinism import check_determinism
from flashverify.checks.execution import Execution, execute
from flashverify.checks.memory import check_memory
from flashverify.checks.padding import check_padding, has_padding
from flashverify.checks.plan import ORACLE_FREE
from flashverify.checks.relations import check_relations
from flashverify.checks.reuse.check import check_reuse
from flashverify.checks.sanitizer import check_sanitizer, explained
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import CaseResult, OutputStats, Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flashverify.case.case import Case
    from flashverify.case.memory.arena import Arena
    from flashverify.checks.plan import Plan
    from flashverify.subjects.interface import Subject

__all__ = ["ORACLE_LIMIT", "judge_case"]

ORACLE_LIMIT = 1 << 42
"""Multiply-adds of the forward, B Hq Sq Sk (D + Dv), beyond which no oracle is asked: oracle-free relations and memory alone."""

_OF_RIGHT_PASSES = ("relations", "counting", "config", "reuse")
"""What is asked of a pass within its bounds: one outside them fails these too, which says nothing new."""


def judge_case(subject: Subject, case: Case, plan: Plan) -> CaseResult:
    """Every verdict about `subject` on `case`.

    A case that the subject does not support gives one `unsupported` verdict. An exception inside the subject is a failure of
    the check `exception`, one inside the harness (a NaN bound, an oracle that cannot be trusted) a verdict `error`. Of a case
    beyond `ORACLE_LIMIT` the verdict of `accuracy` is `exempt`.

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
        self.subject, self.case, self.plan = subject, case, plan.for_case(case)
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
        beyond = work(self.case) > ORACLE_LIMIT
        if not beyond and ("accuracy" in wanted or "nonfinite" in wanted):
            accuracy = check_accuracy(self.subject, execution)
            self.stats += [comparison.stats for comparison in accuracy.comparisons]
            self.warnings += accuracy.warnings
            compared = sum(stats.elements - stats.exempt for stats in self.stats) + accuracy.promised
            void = not compared and any(stats.elements for stats in self.stats)
            if void:
                self._void(wanted)
            found = accuracy.failures()
            for check in ("accuracy", "nonfinite"):
                if check in wanted and not void:
                    self._answer(check, explained(self.subject, execution, [v for v in found if v.check == check]))
        try:
            wrong = any(v.status is Status.FAIL and v.check in ("accuracy", "nonfinite") for v in self.verdicts)
            for check, answer in (
                self._oracle_free(execution) if beyond else self._others(execution, undefined)
            ).items():
                if wrong and check in _OF_RIGHT_PASSES:
                    continue
                if check in wanted and (found_by := answer()) is not None:
                    self._answer(check, found_by)
        except (FlashverifyError, AssertionError):
            raise
        except Exception as error:
            self._exception(error)

    def _others(
        self, base: Execution, undefined: dict[str, torch.Tensor]
    ) -> dict[str, Callable[[], list[Verdict] | None]]:
        """The checks that run the subject again, in their order; None is the answer of one that does not apply."""
        subject, plan = self.subject, self.plan
        taken = plan.spare if base.watch is not None and base.watch.lanes else ()

        def left(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name for name in names if name not in taken)

        return {
            "padding": lambda: (
                list(check_padding(subject, base, plan.poisons, undefined)) if has_padding(self.case) else None
            ),
            "sanitizer": lambda: (
                None if base.watch is None else list(check_sanitizer(subject, base, plan.fills, undefined))
            ),
            "determinism": lambda: check_determinism(subject, base, plan.variants),
            "relations": lambda: check_relations(subject, base, left(plan.relations)),
            "counting": lambda: None if "counting" in taken else _counted(subject, base),
            "config": lambda: check_config(subject, base, plan.configs),
            "reuse": lambda: check_reuse(subject, base, left(plan.reuse), plan.calls),
        }

    def _oracle_free(self, base: Execution) -> dict[str, Callable[[], list[Verdict] | None]]:
        """What is asked beyond the reach of an oracle."""
        size = f"{work(self.case):.3g} multiply-adds are beyond the oracle's {ORACLE_LIMIT:.3g}"
        names = ", ".join(ORACLE_FREE)
        if "accuracy" in self.plan.checks:
            message = f"{size}: asked were memory and the relations {names}"
            self.verdicts.append(Verdict(check="accuracy", status=Status.EXEMPT, message=message))
        return {
            "accuracy": lambda: None,
            "relations": lambda: check_relations(self.subject, base, ORACLE_FREE),
        }

    def _void(self, wanted: tuple[str, ...]) -> None:
        """No element could be compared: that is no pass."""
        message = "every element of every output is exempt: nothing was compared"
        checks = [check for check in ("accuracy", "nonfinite") if check in wanted]
        self.verdicts += [Verdict(check=check, status=Status.EXEMPT, message=message) for check in checks]

    def _answer(self, check: str, found: list[Verdict]) -> None:
        """Keeps the failures; differences that are no failures become warnings; a check without failures passes."""
        failures = [v for v in found if v.status is Status.FAIL]
        self.warnings += [_remark(v) for v in found if v.status is Status.PASS]
        self.verdicts += failures or [Verdict(check=check, status=Status.PASS)]

    def _exception(self, error: Exception) -> None:
        lines = str(error).strip().splitlines() or [""]
        text = f"{type(error).__name__}: {lines[0][:300]}"
        self.verdicts.append(
            Verdict(check="exception", status=Status.FAIL, error="exception", output=type(error).__name__, message=text)
        )


def _counted(subject: Subject, base: Execution) -> list[Verdict] | None:
    """The failures of counting; None where nothing of the case can be counted."""
    found, cells = count_masks(subject, base)
    return found if cells or found else None


def _remark(verdict: Verdict) -> str:
    """A passing verdict of something that is not promised, as a warning."""
    if verdict.check == "reuse":
        return f"reuse: {verdict.message}"
    return f"{verdict.check}: {verdict.error} differs in {verdict.output}"
