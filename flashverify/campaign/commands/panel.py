"""How a campaign stands, in a few lines of at most 80 columns: the same live and by `flashverify status`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.campaign.store.stats import Stats
    from flashverify.campaign.supervisor.events import Progress, WorkerHealth
    from flashverify.judge.verdict import Key

__all__ = ["campaign_words", "clock", "key_words", "one_line", "panel_lines", "ratio_words", "status_text"]

_WIDTH = 80
_LABEL = 10
_SHARES = 3
"""Shares of the workers' time that a line has room for."""


def clock(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ratio_words(worst: dict[str, float]) -> str:
    """The largest ratio of each output."""
    return " ".join(f"{output} {ratio:.3g}" for output, ratio in sorted(worst.items()))


def one_line(text: str) -> str:
    """The text with what cannot be printed, line ends among it, replaced."""
    return "".join(c if c.isprintable() else "?" for c in text)


def campaign_words(kind: str, subjects: Sequence[str], seed: int, shard: str) -> str:
    """Which campaign it is."""
    further = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
    return f"flashverify {kind} {subjects[0]}{further}, seed {seed}" + (f", shard {shard}" if shard else "")


def key_words(key: Key) -> str:
    """A bucket."""
    words = (
        [key.subject, key.check]
        + [key.error] * (key.error != key.check)
        + [key.output] * bool(key.output)
        + [key.dtype]
    )
    return " ".join(words)


def status_text(p: Progress) -> str:
    """One line."""
    parts = [_cases(p), f"{p.rate:.1f}/s", plural(p.findings, "finding")]
    parts += _since(p, "last new")
    parts += [_explaining(p)] * bool(p.explaining)
    parts += [f"{p.errors} errors"] * bool(p.errors)
    parts += [f"{p.restarts} restarts"] * bool(p.restarts)
    parts.append(f"{clock(p.remaining)} left" if p.remaining is not None else f"{clock(p.elapsed)} gone")
    parts += [f"{p.covering} covering"] * bool(p.covering)
    parts += [compiled_words(p.stats)] * (p.stats is not None)
    parts += [f"worst {ratio_words(p.worst)}"] * bool(p.worst)
    return " · ".join(parts)


def compiled_words(stats: Stats | None) -> str:
    """What was compiled, and the largest shares of the workers' time; empty without a GPU."""
    if stats is None:
        return ""
    largest = sorted(stats.shares.items(), key=lambda each: -each[1])[:_SHARES]
    return ", ".join([f"{stats.compiled} compiled", " ".join(f"{name} {100 * share:.0f}%" for name, share in largest)])


def panel_lines(p: Progress, *, head: str = "", state: str = "", width: int = _WIDTH) -> list[str]:
    """A line each for time, coverage, ratios, findings and workers; longer ones end in an ellipsis.

    Args:
        p: how the campaign stands.
        head: which campaign it is; empty leaves that line out.
        state: of the campaign, in words, behind it.
        width: columns of a line; 80 at most.
    """
    left = [] if p.remaining is None else [f"{clock(p.remaining)} left"]
    share = f" ({100 * p.covering / p.cases:.0f} %)" if p.cases else ""
    coverage = f"{p.covering:,} covering{share} · {p.unsupported:,} unsupported · {p.errors:,} not judged"
    findings = [f"{p.findings:,}"]
    findings += _since(p, "last new one")
    findings += [_explaining(p)] * bool(p.explaining)
    rows = [
        ("time", " · ".join([f"{clock(p.elapsed)} gone", *left, _cases(p), f"{p.rate:.1f}/s"])),
        ("coverage", coverage),
        ("worst", ratio_words(p.worst) or "no ratio yet"),
        ("findings", " · ".join(findings)),
        ("workers", _health(p.workers, p.restarts)),
    ]
    if gpus := Counter(each.gpu for each in p.workers if each.gpu):
        label = "places" if any("/" in gpu for gpu in gpus) else "gpus"
        rows.append((label, " · ".join(f"{gpu}: {plural(n, 'worker')}" for gpu, n in sorted(gpus.items()))))
    lines = [f"{head} · {state}" if state else head] if head else []
    lines += [f"{label:{_LABEL}}{text}" for label, text in rows]
    return [_cut(one_line(line), min(width, _WIDTH)) for line in lines]


def _cases(p: Progress) -> str:
    return f"{p.cases:,}/{p.total:,} cases" if p.total is not None else f"{p.cases:,} cases"


def _since(p: Progress, words: str) -> list[str]:
    return [] if p.since_new is None else [f"{words} {clock(p.since_new)} ago"]


def _explaining(p: Progress) -> str:
    words = f"minimising {min(p.explained + p.explaining, p.findings)} of {p.findings}"
    return words + (f", {clock(p.explaining_left)} left" if p.explaining_left is not None else "")


def _health(workers: tuple[WorkerHealth, ...], restarts: int) -> str:
    """How many do what, how long the quietest is quiet, what they use, and how many were lost."""
    parts = [f"{count} {work}" for work, count in sorted(Counter(each.work for each in workers).items())]
    if quiet := max((each.quiet for each in workers), default=0.0):
        parts.append(f"quiet for {clock(quiet)} at most")
    if used := sum(each.memory for each in workers):
        parts.append(f"{used / 2**30:.1f} GiB")
    return " · ".join([*(parts or ["none"]), f"{restarts} lost"])


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"
