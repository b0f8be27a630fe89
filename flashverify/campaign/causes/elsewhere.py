"""Failures of checks that compare a case with another problem: whether what is wrong there belongs to a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.symptoms import VALUES
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from collections.abc import Collection

    from flashverify.judge.verdict import Key, Verdict

__all__ = ["IN_THE_OTHER_PROBLEM", "elsewhere"]

IN_THE_OTHER_PROBLEM = "the problem that the check compared with shows it"


def elsewhere(key: Key, verdict: Verdict, buckets: Collection[Key]) -> bool:
    """Whether the values that the other problem of a check gets wrong all fall into buckets of one finding.

    What is compared are two answers of one output. The case itself is right, so that the difference is the error of the other problem.

    Args:
        key: of the failure.
        verdict: of the failure, with what fails on the other problem.
        buckets: of the finding.
    """
    if verdict.other is None:
        return False
    wrong = [each for each in verdict.other.failures if each[0] in VALUES]
    own = [each for each in wrong if each[2] == key.output]
    if not own and key.output in BACKWARD:
        own = [each for each in wrong if each[2] in FORWARD]
    keys = {
        msgspec.structs.replace(key, check=check, error=error, output=output, cause=0) for check, error, output in own
    }
    return bool(keys) and keys <= set(buckets)
