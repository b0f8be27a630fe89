"""How large the errors of every bucket were, beside their bounds: some are beyond what a step that rounds does."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from flashverify.campaign.causes.needs import rounds
from flashverify.campaign.causes.symptoms import FAR, VALUES
from flashverify.diagnosis.looks import behind_the_exponential, looks
from flashverify.judge.verdict import from_hex
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import CaseResult, Key, Verdict

__all__ = ["ErrorSizes"]


class ErrorSizes:
    """The largest error of each bucket on all cases that were judged, in bounds.

    Of a gradient beside a wrong O or LSE only the error given these counts: the other one may follow from them.
    """

    def __init__(self) -> None:
        self._largest: dict[Key, float] = {}

    def add(self, result: CaseResult, dtype: str) -> None:
        """Look at what failed on a case itself."""
        for verdict in _own(result):
            key = verdict.key(result.subject, dtype)
            self._largest[key] = max(self._largest.get(key, 0.0), from_hex(verdict.ratio))

    def beyond(self, found: FindingRecord, lead: FindingRecord) -> bool:
        """Whether a finding has errors that the step cannot make that those of another one look like.

        No rounding makes a number of an element that is exactly 0 however its sum is rounded. Nor does a step of the forward whose errors
        no exponential makes larger make errors in gradients, given O and the LSE, many times as large as all that it was seen to make.
        """
        if not rounds(lead) or found.key.check != "accuracy":
            return False
        most = self._of(found)
        usual = max(self._largest.get(key, 0.0) for key in (lead.key, *(each.key for each in lead.folded)))
        assert lead.diagnosis is not None
        later = lead.key.output in FORWARD and found.key.output in BACKWARD
        held = later and behind_the_exponential(looks(lead.diagnosis.sentence))
        return most == inf or (held and most > FAR * usual > 0)

    def _of(self, finding: FindingRecord) -> float:
        """Of a second cause of a bucket only its own case counts: the others show the first one."""
        own = from_hex(finding.verdict.ratio) if finding.verdict.ratio else 0.0
        return own if own == inf else self._largest.get(finding.key, 0.0)


def _own(result: CaseResult) -> Iterator[Verdict]:
    """The values outside their bounds that do not only follow from others."""
    forward = any(verdict.check in VALUES and verdict.output in FORWARD for verdict in result.failures)
    for verdict in result.failures:
        follows = forward and verdict.output in BACKWARD and verdict.mode != "conditional"
        told = verdict.check == "accuracy" and bool(verdict.ratio) and verdict.mode != "strict"
        if told and not follows and result.case_of(verdict) == result.case:
            yield verdict
