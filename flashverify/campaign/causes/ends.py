"""Whether two runs that did not come to an end of their own ended in the same way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flashverify.campaign.plan_name import PROCESS_CHECKS

if TYPE_CHECKING:
    from flashverify.judge.verdict import Verdict

__all__ = ["same_end"]

_FRAME = re.compile(r'File "(.*?)", line (\d+)')


def same_end(mine: Verdict, other: Verdict) -> str | None:
    """In words that are empty where they ended otherwise; None where both came to an end of their own."""
    checks = {mine.check, other.check}
    if checks & set(PROCESS_CHECKS):
        same = (mine.check, mine.error, mine.message) == (other.check, other.error, other.message)
        return "the same end of the process at the same place" if same and " at " in mine.message else ""
    return _same_exception(mine, other) if "exception" in checks else None


def _same_exception(mine: Verdict, other: Verdict) -> str:
    if (mine.check, mine.output) != (other.check, other.output):
        return ""
    frames = [_FRAME.findall(each.traceback)[-1:] for each in (mine, other)]
    return "the same exception at the same line" if frames[0] and frames[0] == frames[1] else ""
