"""A corpus of your own, kept between runs: cases that failed, and those that came closest to a bound. One text form a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.store.files import write_atomic
from flashverify.campaign.store.reader import open_run
from flashverify.case.text import VERSION, format_case, parse_case
from flashverify.errors import ConfigError, UsageError
from flashverify.judge.verdict import from_hex

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["keep_cases", "kept_cases"]

_HEAD = "# Cases of `flashverify --corpus`: judged first, whatever comes after."
_MOST = 500


def kept_cases(path: Path) -> tuple[str, ...]:
    """The cases of a file; none where there is no such file yet.

    Raises:
        ConfigError: it cannot be read, or a line is no case.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    found: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            try:
                found[format_case(parse_case(line))] = None
            except UsageError as error:
                raise ConfigError(f"{path}, line {number}: {line[:80]!r} is not accepted: {error}") from error
    return tuple(found)


def keep_cases(path: Path, run: Path) -> None:
    """Add the cases of a run: of each finding the smallest and the first one, and of each output and dtype the one nearest its bound.

    Of more than 500 the oldest ones go. Comments stay.

    Raises:
        StoreError: the run cannot be read, or the file cannot be written.
    """
    stored = open_run(run)
    nearest: dict[tuple[str, str, str], tuple[float, str]] = {}
    for result in stored.results():
        dtype = parse_case(result.case).dtype
        for stats in result.stats:
            ratio, key = from_hex(stats.worst), (result.subject, stats.output, dtype)
            if ratio <= 1 and ratio > nearest.get(key, (0.0, ""))[0]:
                nearest[key] = (ratio, result.case)
    new = [text for finding in stored.findings for text in (finding.record.first, finding.record.case)]
    new += [text for _, text in sorted(nearest.values())]
    known = kept_cases(path)
    fresh = [text for text in dict.fromkeys(new) if text not in known]
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else [_HEAD]
    too_many = len(known) + len(fresh) - _MOST
    oldest = [n for n, line in enumerate(lines) if line.startswith(VERSION)][: max(0, too_many)]
    for number in reversed(oldest):
        del lines[number]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(f"{line}\n" for line in (*lines, *fresh)).encode())
