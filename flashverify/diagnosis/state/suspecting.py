"""Whether a failure about values is one of a later call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flashverify.diagnosis.state.calling import Way, called
from flashverify.diagnosis.state.pairs import pairs

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["suspected"]

_SUSPECTING = 2
"""Sizes of pairs, each of which shows a second call that is wrong after a right one: by chance one may."""


def suspected(subject: Subject, case: Case, number: int, end: float, *, wide: bool = False) -> bool:
    """Whether a second call at the addresses of the first is wrong, and the first is right, for pairs of two sizes.

    Args:
        subject: the kernel under test.
        case: where it fails.
        number: of the diagnosis.
        end: `time.monotonic()` after which no further pair is tried.
        wide: heads and channels are new too: what is kept may go by these alone.
    """
    for kind in ("lengths", "values", "settings"):
        asked: dict[tuple[int, int, int], bool] = {}
        wrong_first = 0
        for pair in pairs(subject, case, kind, number, wide=wide):
            size = pair.earlier.batch, pair.earlier.seq_q, pair.earlier.seq_k
            if (size not in asked and len(asked) == _SUSPECTING) or time.monotonic() > end:
                break
            if asked.get(size, False):
                continue
            each = called(subject, pair, Way.HELD)
            if each is not None:
                asked[size] = bool(each.later.failures)
                continue
            wrong_first += 1
            if pair.earlier.batch != case.batch or wrong_first == _SUSPECTING:  # else it may be kept by the batch alone
                return False
        if len(asked) == _SUSPECTING and all(asked.values()):
            return True
    return False
