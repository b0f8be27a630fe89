"""The end of a session: what was judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.judge.record import THIN
from flashverify.pytest_plugin.seen import Seen
from flashverify.pytest_plugin.stash import folder_of

if TYPE_CHECKING:
    import pytest

__all__ = ["write_summary"]


def write_summary(reporter: Any, config: pytest.Config) -> None:
    """A section of a few lines; nothing where no case was judged."""
    seen = Seen.read(folder_of(config))
    if not seen.subjects:
        return
    reporter.write_sep("=", "flashverify")
    for line in seen.lines():
        reporter.write_line(line)
    for name, entry in sorted(seen.subjects.items()):
        if entry.covering < THIN and not entry.failed:
            reporter.write_line(f"{name}: thin, fewer than {THIN} covering cases are no more than a first look")
