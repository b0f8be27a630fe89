"""New entries for a baseline: text to be completed by hand, because a reason and a link are no program's to give."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from flashverify.judge.wording import visible

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable
    from pathlib import Path

    from flashverify.judge.record import FindingRecord

__all__ = ["add_entries", "entry_of", "ratio_entry"]

_HEAD = """# Failures that are known and may stand, each with a reason and a link, and ratios that may not be exceeded.
# An entry without a reason, a link or a date is refused. docs/baseline.md describes the keys.
format = 1
"""


def entry_of(record: FindingRecord, date: datetime.date) -> str:
    """An entry for a finding; it is refused until somebody gives it a reason and a link."""
    cause = record.diagnosis.name if record.diagnosis is not None else ""
    key = record.key
    what = {"cause": cause} if cause else {"check": key.check, "error": key.error, "output": key.output}
    facts = {"subject": record.subject_spec, **what, "case": record.case}
    lines = [f"{name} = {_quoted(text)}" for name, text in facts.items() if text]
    return "\n".join(["[[known]]", *lines, 'reason = ""', 'link = ""', f"date = {date.isoformat()}"]) + "\n"


def ratio_entry(subject: str, output: str, dtype: str, worst: float, date: datetime.date) -> str:
    """A ceiling at a ratio that was seen, rounded up to two digits."""
    digits = 1 - math.floor(math.log10(worst))
    rounded = math.ceil(worst * 10**digits) / 10**digits
    lines = (f"subject = {_quoted(subject)}", f"output = {_quoted(output)}", f"dtype = {_quoted(dtype)}")
    return "\n".join(["[[ratio]]", *lines, f"worst = {rounded:.2g}", f"date = {date.isoformat()}"]) + "\n"


def add_entries(path: Path, entries: Iterable[str]) -> None:
    """Append entries to a baseline; what stands there, comments too, stays as it is. The file is made where there is none."""
    text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    path.write_text("\n".join([text.rstrip("\n") + "\n", *entries]), encoding="utf-8")


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(visible(text))
