"""Stored numbers and foreign text, made fit to print."""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime

from flashverify.judge.verdict import from_hex

__all__ = [
    "count_text",
    "duration_text",
    "evidence_text",
    "number_text",
    "plural",
    "ratio_of",
    "ratio_text",
    "share_text",
    "time_text",
    "tone",
    "visible",
    "worse",
]

_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def visible(text: str) -> str:
    """`text` with control, bidirectional, zero-width and surrogate characters written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _UNPRINTABLE else c for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def evidence_text(evidence: str) -> str:
    """Evidence in words."""
    return {"interpreter": "Triton's CPU interpreter", "cpu": "the CPU", "": "unknown evidence"}.get(evidence, evidence)


def ratio_of(text: str) -> float:
    """The float of a stored hex string; NaN where it is none, which every table shows as out of bounds."""
    try:
        return from_hex(text)
    except (ValueError, OverflowError):
        return math.nan


def worse(a: float | None, b: float) -> bool:
    """Whether ratio `b` is worse than `a`; NaN is the worst of all, None the best."""
    return a is None or (not math.isnan(a) and (math.isnan(b) or b > a))


def tone(ratio: float | None) -> str:
    """`none`, `calm` (below 0.5), `near` (up to 1) or `over`."""
    if ratio is None:
        return "none"
    return "calm" if ratio < 0.5 else "near" if ratio <= 1 else "over"


def ratio_text(ratio: float | None) -> str:
    """Three significant digits, and as many more as it takes to stay on the right side of 1."""
    if ratio is None:
        return "–"
    if not math.isfinite(ratio):
        return "NaN" if math.isnan(ratio) else "∞" if ratio > 0 else "-∞"
    if ratio == 0 or ratio == 1:
        return str(int(ratio))
    for digits in range(3, 18):
        text = f"{ratio:#.{digits}g}".rstrip(".")
        if float(text) != 1 and (float(text) > 1) == (ratio > 1):
            return text
    return repr(ratio)


def number_text(stored: str) -> str:
    """A stored hex float in nine digits; empty where nothing is stored."""
    if not stored:
        return ""
    value = ratio_of(stored)
    return f"{value:.9g}"


def count_text(count: int) -> str:
    """A number with thousands separators."""
    return f"{count:,}"


def plural(count: int, word: str, many: str = "") -> str:
    """`1 case`, `2 cases`."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def share_text(part: int, whole: int) -> str:
    """A percentage that says 0 % and 100 % only where that is exact."""
    if whole <= 0:
        return "–"
    percent = 100 * part / whole
    if part and percent < 0.1:
        return "< 0.1 %"
    if part != whole and percent > 99.9:
        return "> 99.9 %"
    return f"{percent:.3g} %"


def duration_text(seconds: float) -> str:
    """`12.3 s`, `4 min 05 s`, `2 h 03 min`."""
    if not 0 <= seconds < 1e9:
        return "–"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def time_text(epoch: float) -> str:
    """UTC, to the minute; empty where no time is known."""
    try:
        return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M UTC") if epoch > 0 else ""
    except (OverflowError, OSError, ValueError):
        return ""
