"""Tasks about findings; the one that minimises a finding, with what is known of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import names
from flashverify.campaign.causes.sighting import may_follow
from flashverify.campaign.causes.symptoms import symptom
from flashverify.campaign.protocol import Attribute, Compare, Mend, Minimise, Profile, Reconsider, Retry, Separate

if TYPE_CHECKING:
    from flashverify.campaign.causes.book import CauseBook
    from flashverify.campaign.supervisor.config import CampaignConfig
    from flashverify.campaign.supervisor.tally import Tally
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Explains", "finding_of", "minimisation"]

Explains = Minimise | Attribute | Compare | Separate | Profile | Reconsider | Mend | Retry
"""A task about a finding."""

_SHRINKING = 0.4
"""Share of the time of a finding for shrinking it; the diagnosis needs as much, and the verification follows."""


def minimisation(
    config: CampaignConfig, tally: Tally, book: CauseBook, record: FindingRecord, limit: float | None, *, again: bool
) -> Minimise:
    """Shrink, verify and diagnose a finding.

    Args:
        config: of the campaign.
        tally: what was seen.
        book: of the causes.
        record: the finding.
        limit: seconds that all of it may take; None is no limit.
        again: whether a worker died over it before.
    """
    shrinking = config.shrink_seconds if limit is None else min(config.shrink_seconds, _SHRINKING * limit)
    hang = record.verdict.check == "hang"  # every repeat and every candidate of a hang costs the whole time limit
    others = book.known(record.key.subject)
    known = names(others)
    sighting = book.sighting(record.key)
    second = [c.key for c in others if record.key.cause and c.key not in known]
    return Minimise(
        record.subject_spec,
        record.key,
        record.case,
        record.first,
        record.verdict,
        shrinking if config.shrink and not hang else 0.0,
        1 if hang else config.repeats,
        tally.quarantine(record.subject_spec),
        limit,
        known=tuple(known.values()),
        apart=tuple(key for key in second if symptom(key) != symptom(record.key)),
        beside=book.beside(record),
        undiagnosed=again,
        own=sighting is not None and not may_follow(sighting),
    )


def finding_of(task: Explains) -> Key:
    """The finding that a task is about."""
    return task.key if isinstance(task, Minimise) else task.cause.key
