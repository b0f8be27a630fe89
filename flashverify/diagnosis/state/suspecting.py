"""Whether a failure about values is one of a later call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flashverify.diagnosis.state.calling import Way, called
from flashverify.diagnosis.state.pairs import fresh_number, pairs

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["suspected"]

_KINDS = ("lengths", "values", "settings", "launch", "sizes")
_SUSPECTING = 2
"""Sizes of pairs, each of which shows a second call that is wrong after a right one: by chance one may."""
_FURTHER = 2
"""Sizes that are asked besides where one of them shows that."""


def suspected(subject: Subject, case: Case, end: float, *, wide: bool = False) -> str:
    """In what two problems differ of which the second is wrong at the addresses of the first and the first is right, for pairs of two sizes.

    Args:
        subject: the kernel under test.
        case: where it fails.
        end: `time.monotonic()` after which no further pair is tried.
        wide: heads and channels are new too: what is kept may go by these alone.

    Returns:
        One of the kinds of `kinds_of`; empty where there is none.
    """
    for kind in _KINDS:
        asked: dict[tuple[int, int, int], bool] = {}
        wrong_first = 0
        for pair in pairs(
            subject, case, kind, fresh_number(), wide=wide
        ):  # what goes by the batch alone was not asked for another kind
            base = pair.later if pair.turned else pair.earlier
            size = base.batch, base.seq_q, base.seq_k
            most = _SUSPECTING + _FURTHER * any(asked.values())
            if (size not in asked and len(asked) == most) or time.monotonic() > end:
                break
            if asked.get(size, False):
                continue
            each = called(subject, pair, Way.HELD)
            if each is not None:
                asked[size] = bool(each.later.failures)
                if sum(asked.values()) == _SUSPECTING:
                    return kind
                continue
            wrong_first += 1
            if pair.earlier.batch != case.batch or wrong_first == _SUSPECTING:  # else it may be kept by the batch alone
                return ""
    return ""
