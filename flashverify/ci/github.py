"""What GitHub Actions shows of a run: annotations, as commands on stderr, and the summary of the step; within their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.card.lines import card_lines
from flashverify.ci.sarif import place_of
from flashverify.judge.wording import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from flashverify.baseline.entries import Known
    from flashverify.campaign.card.content import Card

__all__ = ["MOST_ANNOTATIONS", "MOST_SUMMARY", "annotation_lines", "append_summary", "in_github"]

MOST_ANNOTATIONS = 10
"""Of one kind that GitHub shows of a step."""
MOST_SUMMARY = 1024 * 1024
"""Bytes of all that a step may write to its summary."""
_MOST_MESSAGE = 4000


def in_github(environ: Mapping[str, str]) -> bool:
    """Whether this process runs in GitHub Actions."""
    return environ.get("GITHUB_ACTIONS") == "true"


def annotation_lines(
    cards: Iterable[tuple[Card, Known | None]], others: Iterable[tuple[str, str]], root: Path
) -> list[str]:
    """The annotations of a step: an error for each finding that may not stand, a notice for each that may.

    Args:
        cards: of the findings, each with its entry in the baseline.
        others: title and text of further errors.
        root: folder of the repository, from which files are named.
    """
    errors, notices = [_command("error", title, text) for title, text in others], []
    for card, entry in cards:
        place = place_of(card.record.subject_spec, root)
        if entry is None:
            errors.append(_command("error", card.title, "\n".join(card_lines(card)[1:]), place))
        else:
            notices.append(_command("notice", f"known: {card.title}", f"{entry.reason} ({entry.link})", place))
    more = len(errors) - MOST_ANNOTATIONS
    if more > 0:
        text = f"{more + 1} more are in the summary of this step"
        errors = [*errors[: MOST_ANNOTATIONS - 1], _command("error", "flashverify", text)]
    return errors + notices[:MOST_ANNOTATIONS]


def _command(kind: str, title: str, message: str, place: tuple[str, int] | None = None) -> str:
    where = f"file={_property(place[0])},line={place[1]}," if place is not None else ""
    text = "\n".join(visible(line) for line in message.split("\n"))
    text = text if len(text) <= _MOST_MESSAGE else text[: _MOST_MESSAGE - 1] + "…"
    return f"::{kind} {where}title={_property(visible(title)[:200])}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def append_summary(path: Path, text: str) -> None:
    """Append Markdown to the summary of the step; left out, and said so, where it would pass the limit.

    Raises:
        OSError: the file cannot be written.
    """
    used = path.stat().st_size if path.exists() else 0
    data = f"{text}\n".encode()
    if used + len(data) > MOST_SUMMARY:
        data = b"flashverify: the report is too long for this summary; report.html has it.\n"
    if used + len(data) <= MOST_SUMMARY:
        with path.open("ab") as file:
            file.write(data)
