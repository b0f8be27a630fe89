"""Two runs ended in the same way where the process died at one place, or one line raised."""

import pytest

from flashverify.campaign.causes.ends import same_end
from flashverify.judge.verdict import Status, Verdict

DIED = "the worker died (SIGSEGV) at attend.py:7"


def verdict(check, output="", message="", line=None):
    traceback = "" if line is None else f'File "a.py", line 1, in run\nFile "attend.py", line {line}, in attend'
    return Verdict(check=check, status=Status.FAIL, output=output, message=message, traceback=traceback)


@pytest.mark.parametrize(
    ("mine", "other", "words"),
    [
        (verdict("exception", "E", line=7), verdict("exception", "E", line=7), "the same exception at the same line"),
        (verdict("exception", "E", line=7), verdict("exception", "E", line=8), ""),
        (verdict("exception", "E", line=7), verdict("exception", "F", line=7), ""),
        (verdict("exception", "E"), verdict("exception", "E"), ""),
        (verdict("exception", "E", line=7), verdict("accuracy", "o"), ""),
        (
            verdict("crash", message=DIED),
            verdict("crash", message=DIED),
            "the same end of the process at the same place",
        ),
        (verdict("crash", message=DIED), verdict("crash", message="the worker died (SIGSEGV)"), ""),
        (verdict("crash", message="it died"), verdict("crash", message="it died"), ""),
        (verdict("crash", message=DIED), verdict("accuracy", "o"), ""),
        (verdict("padding", "o"), verdict("accuracy", "o"), None),
    ],
)
def test_what_ended_in_the_same_way_is_one_cause(mine, other, words):
    assert same_end(mine, other) == words
    assert same_end(other, mine) == words
