"""The seam between the campaign and everything that knows attention. Nothing here imports torch before it is called."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from flashverify.campaign.ahead import CompilesAhead
from flashverify.campaign.plan_name import PlanName
from flashverify.child_process import VISIBLE
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.case import Case
    from flashverify.judge.record import Confirmation, Diagnosis, Repair
    from flashverify.judge.verdict import CaseResult, Verdict

__all__ = ["BUNDLED", "Toolkit", "bundled", "load_toolkit"]

_RAW_DRAWS = 300
"""Draws on which the conditions of a subject that refuses everything are counted."""
_REASONS = 5
"""Conditions that are named."""

BUNDLED = "flashverify.campaign.toolkit:bundled"


class Toolkit(Protocol):
    """What a worker needs to know of attention. `subject` is whatever `load` returned."""

    def open(self, device: str, *, plain: bool, numerics: str) -> AbstractContextManager[object]:
        """What a worker holds open for its life; `plain` is the slow, simple way of whatever has a fast one.

        `numerics` are those of interpreted kernels. Raises where the device does not compute, so that no case is blamed for it.
        """

    def require_findable(self, spec: str) -> None:
        """Raises SubjectLoadError where it is certain, without loading anything, that there is no subject `spec`."""

    def load(self, spec: str) -> Any:
        """The subject named `spec`; raises SubjectLoadError."""

    def form(self, subject: Any) -> str:
        """The numerical form of the subject, in words."""

    def strategy(self, subject: Any, device: str, profile: str = "") -> SearchStrategy[Case]:
        """Cases to search, on `cpu` or `cuda`; as large as that profile says, or that of the device."""

    def undrawable(self, subject: Any, device: str, profile: str = "") -> str:
        """Why there are no cases to search: what is not accepted, and which condition refuses what share of the draws."""

    def matrix(self, subject: Any, device: str) -> tuple[Case, ...]:
        """The fixed cases of `flashverify run`."""

    def refusal(self, subject: Any, case: Case) -> str | None:
        """Why the subject does not accept the case, or None."""

    def judge(self, subject: Any, case: Case, plan: str) -> CaseResult:
        """Every verdict on the case; `plan` is `run`, `fuzz`, `outside` or `only:CHECK`."""

    def confirm(self, subject: Any, case: Case, verdict: Verdict) -> Confirmation:
        """What the multi-precision oracle says of a failure."""

    def diagnose(
        self,
        subject: Any,
        case: Case,
        verdict: Verdict,
        *,
        first: Case | None = None,
        seconds: float = math.inf,
        work: float | None = None,
        afresh: Callable[[], bool | None] = lambda: None,
    ) -> Diagnosis:
        """Which wrong semantics explains a failure, and where it shows, within `seconds` on the wall clock.

        Args:
            subject: the kernel under test.
            case: where it fails.
            verdict: the failing verdict.
            first: another case that fails likewise.
            seconds: on the wall clock.
            work: seconds of them that it may work; None for the usual ones.
            afresh: whether a process that computed nothing before fails in the same way; None where that is not known.
        """

    def attributed(self, subject: Any, case: Case, verdict: Verdict, diagnosis: Diagnosis) -> bool | None:
        """Whether what a diagnosis names makes the output of `verdict` what it is; None where that cannot be told."""

    def repairs(self, subject: Any, case: Case, *, first: Case | None, seconds: float) -> Iterator[Repair]:
        """Changes of one place of the subject's source that make it right on `case`, on which it fails, and on others, each as it is found, within `seconds`."""

    def with_repair(self, subject: Any, case: Case, repair: Repair) -> AbstractContextManager[bool]:
        """The subject runs with a repair, whose function runs on `case`, until the end of the block; what it gives is False where it cannot."""

    def follows_from_delta(self, subject: Any, case: Case, output: str) -> bool:
        """Whether a gradient is wrong, and right given the subject's own delta, which is wrong too."""


class _Bundled(CompilesAhead):
    """The checks, strategies and subjects of flashverify."""

    def __init__(self) -> None:
        # By subject, the loads whose undefined lanes this process has reported: they would fail nearly every case.
        self._reported: dict[str, set[Any]] = {}

    def open(self, device: str, *, plain: bool, numerics: str = "ieee") -> AbstractContextManager[object]:
        if device != "cpu":
            import torch  # also so that the first answer of a worker says which GPU it has

            # A GPU that cannot even do this is at fault, not a case that comes after. A process that compiles ahead sees none.
            if os.environ.get(VISIBLE) != "":
                torch.ones(1, device="cuda").item()
            return nullcontext()
        from flashverify.interpreter import Sanitizer, faithful
        from flashverify.interpreter.hardware import mode

        return faithful(Sanitizer, *mode(numerics).layers, lockstep=not plain)

    def require_findable(self, spec: str) -> None:
        from flashverify.subjects.finding import require_findable

        require_findable(spec)

    def load(self, spec: str) -> Any:
        from flashverify.subjects import load_subject

        return load_subject(spec)

    def form(self, subject: Any) -> str:
        from flashverify.case.case import Case

        supports = subject.supports
        dim = max(16, supports.dim_multiple)
        described = subject.form(Case(dtype=supports.dtypes[0], dim_qk=dim, dim_v=dim)).describe()
        return "; ".join(
            f"{part}: {', '.join(f'{k}={v}' for k, v in values.items())}"
            for part, values in described.items()
            if values
        )

    def strategy(self, subject: Any, device: str, profile: str = "") -> SearchStrategy[Case]:
        from flashverify.case.space.profiles import profile_of
        from flashverify.case.space.strategies import cases

        return cases(subject.supports, profile=profile_of(device, profile))

    def undrawable(self, subject: Any, device: str, profile: str = "") -> str:
        from flashverify.campaign.worker.search import draw
        from flashverify.case.space.profiles import profile_of
        from flashverify.case.space.rejections import raw_cases, rejections

        drawn = draw(raw_cases(subject.supports, profile_of(device, profile)), _RAW_DRAWS, 0)
        found = "; ".join(str(each) for each in rejections(subject.supports, drawn)[:_REASONS])
        return (
            f"subject {subject.name!r} is not accepted: `also` refuses every case that is drawn; accepted: one that leaves some. "
            f"Of {len(drawn)} draws it refused: {found}"
        )

    def matrix(self, subject: Any, device: str) -> tuple[Case, ...]:
        from flashverify.case.space.matrix import standard_matrix

        return standard_matrix(subject.supports, device=device)

    def refusal(self, subject: Any, case: Case) -> str | None:
        return subject.supports.refusal(case)  # type: ignore[no-any-return]

    def judge(self, subject: Any, case: Case, plan: str) -> CaseResult:
        from flashverify.checks import CHECKS, Plan, judge_case

        named = PlanName.parse(plan)
        if named.kind == "outside":
            from flashverify.campaign.refusals.judging import result_outside

            return result_outside(subject, case)
        if not named.check:
            made = Plan.run() if named.kind == "run" else Plan.fuzz(case)
            reported = self._reported.setdefault(subject.name, set())
            return judge_case(subject, case, dataclasses.replace(made, reported=reported))
        accepted = (*CHECKS, "exception")
        if named.check not in accepted:
            raise UsageError(f"check={named.check!r} is not accepted: one of {', '.join(accepted)}")
        return judge_case(subject, case, Plan.only(named.check, case))

    def confirm(self, subject: Any, case: Case, verdict: Verdict) -> Confirmation:
        from flashverify.checks.confirm import confirm

        return confirm(subject, case, verdict)

    def diagnose(
        self,
        subject: Any,
        case: Case,
        verdict: Verdict,
        *,
        first: Case | None = None,
        seconds: float = math.inf,
        work: float | None = None,
        afresh: Callable[[], bool | None] = lambda: None,
    ) -> Diagnosis:
        from flashverify.diagnosis.clock import Clock
        from flashverify.diagnosis.diagnose import PATIENCE, SECONDS, diagnose

        limit = min(PATIENCE * SECONDS, seconds)
        spent = min(SECONDS if work is None else work, limit)
        clock = Clock.ending(spent, limit)
        return diagnose(subject, case, verdict, first=first, seconds=spent, clock=clock, afresh=afresh)

    def attributed(self, subject: Any, case: Case, verdict: Verdict, diagnosis: Diagnosis) -> bool | None:
        from flashverify.diagnosis.attribution import attributed
        from flashverify.diagnosis.observation import LARGEST
        from flashverify.diagnosis.trials import work

        if not diagnosis.name or work(case) > LARGEST:
            return None
        return attributed(subject, case, verdict, diagnosis, alone=True)

    def repairs(self, subject: Any, case: Case, *, first: Case | None, seconds: float) -> Iterator[Repair]:
        from flashverify.repair.search import repairs

        return repairs(subject, case, first=first, seconds=seconds)

    def with_repair(self, subject: Any, case: Case, repair: Repair) -> AbstractContextManager[bool]:
        from flashverify.repair.again import with_repair

        return with_repair(subject, case, repair)

    def follows_from_delta(self, subject: Any, case: Case, output: str) -> bool:
        from flashverify.diagnosis.dataflow import follows_from_delta

        return follows_from_delta(subject, case, output)


bundled: Toolkit = _Bundled()


def load_toolkit(spec: str) -> Toolkit:
    """The toolkit at `module:name`.

    Raises:
        UsageError: there is none.
    """
    module, _, name = spec.partition(":")
    try:
        toolkit: Toolkit = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"toolkit={spec!r} is not accepted: {error}") from error
    return toolkit
