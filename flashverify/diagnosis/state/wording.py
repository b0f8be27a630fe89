"""The words of what is kept between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.diagnosis.state.candidates import Candidate
    from flashverify.judge.record import Diagnosis

__all__ = ["BEFORE", "IN_TURN", "joined", "listed", "name_of", "said", "sentence", "tells_of_state"]

BEFORE = "on the call before it"
IN_TURN = "calls of one problem, one after the other"
_KEPT = "stale-"


def tells_of_state(found: Diagnosis) -> bool:
    """Whether a diagnosis is about what a call has of earlier ones."""
    return found.name.startswith(_KEPT) or any(words in found.reading for words in (BEFORE, IN_TURN))


def name_of(candidate: Candidate, outputs: list[str]) -> str:
    """The name of a diagnosis; those that are about outputs end with these."""
    return "-".join(("stale", candidate.name, *(outputs if candidate.of_outputs else ())))


def said(candidate: Candidate, outputs: list[str], alike: str) -> str:
    """Its sentence, without a full stop.

    Args:
        candidate: what is kept.
        outputs: that fail.
        alike: what both calls have alike, or which call the earlier one is.
    """
    holds = "holds" if len(outputs) == 1 else "hold"
    return candidate.sentence.format(outputs=joined(outputs), holds=holds, alike=alike)


def joined(names: list[str]) -> str:
    """Names with commas, the last one after "and"."""
    return listed(names, "and")


def listed(names: list[str], word: str) -> str:
    """Names with commas, the last one after `word`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + "."
