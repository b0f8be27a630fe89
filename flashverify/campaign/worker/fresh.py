"""A failure in processes that computed nothing before: whether it shows there, and what the second oracle says of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.hidden import bucket_of
from flashverify.campaign.plan_name import PROCESS_CHECKS
from flashverify.campaign.protocol import Judge
from flashverify.case.text import parse_case
from flashverify.errors import NoVerdictError
from flashverify.judge.record import Confirmation

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Minimise
    from flashverify.campaign.supervisor.probe import Probe
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult, Key, Verdict

__all__ = ["Fresh", "failure"]


class Fresh:
    """Judges cases of a finding elsewhere.

    Args:
        probe: where.
        task: about the finding.
        plan: what is asked of a case.
        end: `time.monotonic()` after which nothing more is asked.
    """

    def __init__(self, probe: Probe, task: Minimise, plan: str, end: float) -> None:
        self._probe, self._task, self._plan, self._end = probe, task, plan, end
        self._first: tuple[str, Verdict | None] | None = None

    def fails(self, text: str) -> bool | None:
        """Whether the first call of a process fails in the same way; None where nothing is verified, or there was no time."""
        if not self._task.repeats:
            return None
        self._probe.refresh()
        try:
            self._first = text, self._judged(text)
        except NoVerdictError:
            return None
        return self._first[1] is not None

    def verified(self, text: str, verdict: Verdict) -> tuple[Verdict, Confirmation]:
        """Judge as often as the task says, beginning in a process that judged nothing before; then ask the second oracle."""
        known, self._first = self._first, None
        confirmation, failed, made = Confirmation(), 0, 0
        if known is None or known[0] != text:
            known = None
            self._probe.refresh()
        for turn in range(self._task.repeats):
            try:
                found = known[1] if turn == 0 and known is not None else self._judged(text)
            except NoVerdictError:
                if time.monotonic() < self._end:
                    raise
                break
            made += 1
            if found is not None:
                verdict = verdict if failed else found
                failed += 1
        if failed and self._task.key.check not in PROCESS_CHECKS and time.monotonic() < self._end:
            confirm = Judge(self._task.subject, text, self._plan, confirm=bucket_of(self._task.key))
            try:
                confirmation = self._probe.judge(confirm, deadline=self._end).confirmation
            except NoVerdictError:  # the second oracle took too long; the failure stands without it
                confirmation = Confirmation()
        return verdict, msgspec.structs.replace(confirmation, repeats=made, failed=failed)

    def _judged(self, text: str) -> Verdict | None:
        judge = Judge(self._task.subject, text, self._plan)
        result = self._probe.judge(judge, deadline=self._end).result
        return failure(result, parse_case(text), self._task.key)


def failure(result: CaseResult, case: Case, key: Key) -> Verdict | None:
    """The failure of a bucket, where a case shows it."""
    bucket = bucket_of(key)
    return next((v for v in result.failures if v.key(result.subject, case.dtype) == bucket), None)
