"""Whose exception it is, the subject's or the harness's, and its traceback as text."""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["raised_by_subject", "subject_code", "traceback_text"]

_MARK = "_flashverify_raised_by_subject"
_MOST = 4000


@contextlib.contextmanager
def subject_code() -> Iterator[None]:
    """Inside, the code of a subject runs: what it raises is its own."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(AttributeError, TypeError):
            setattr(error, _MARK, True)
        raise


def raised_by_subject(error: BaseException | None) -> bool:
    """Whether an exception, or the one that caused it, left the code of a subject."""
    while error is not None:
        if getattr(error, _MARK, False):
            return True
        error = error.__cause__
    return False


def traceback_text(error: BaseException) -> str:
    """The traceback, at most 4000 characters of its end, which is where it was raised."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return text if len(text) <= _MOST else "..." + text[3 - _MOST :]
