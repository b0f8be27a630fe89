"""Cases outside a declaration in words: lines of the terminal, and what the pages list."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from flashverify.campaign.refusals.record import Outside, Refusals

__all__ = ["ADVICE", "OUTCOMES", "counts_text", "refusal_lines", "replay_text"]

OUTCOMES = {
    "refused": "refused with an exception",
    "right": "right",
    "wrong": "silently wrong",
    "died": "ended its process",
    "hung": "did not end",
    "not judged": "could not be judged",
}
ADVICE = (
    "None of these cases is a failure of the subject: it does not declare them. A caller who leaves the declaration gets no warning: "
    "refuse such arguments, or support and declare them. A mask or a modifier that the adapter does not hand on is such a case too."
)
_MOST = 8


def counts_text(record: Refusals) -> str:
    """How many cases had which outcome."""
    counts = record.counts
    parts = [f"{counts[outcome]} {words}" for outcome, words in OUTCOMES.items() if counts[outcome]]  # type: ignore[index]
    return f"{plural(len(record.cases), 'case')} outside the declaration: {', '.join(parts) or 'none'}"


def replay_text(each: Outside) -> str:
    """Where to see it again."""
    return f"flashverify replay {shlex.quote(each.case)} --subject {shlex.quote(each.subject)} --outside"


def _kind(words: str) -> str:
    """A property without its value: `dropout` of `dropout=0.1`."""
    return words.split(", it")[0].split("=")[0]


def refusal_lines(record: Refusals) -> list[str]:
    """Lines for the terminal: counts, then a case for every property that went wrong."""
    lines = [counts_text(record)]
    shown: dict[tuple[str, str, str], Outside] = {}
    for each in record.bad:
        shown.setdefault((each.subject, each.outcome, _kind(each.property)), each)
    for each in list(shown.values())[:_MOST]:
        lines.append(f"  {OUTCOMES[each.outcome]}: {each.subject}: {each.property}")
        lines.append(f"    {each.message}")
        lines.append(f"    {replay_text(each)}")
    if len(shown) > _MOST:
        lines.append(f"  and {len(shown) - _MOST} further properties; the report has them")
    lines += [f"  {ADVICE}"] * bool(shown)
    lines += [f"  no time was left for every property of {name}" for name in record.unfinished]
    return lines
