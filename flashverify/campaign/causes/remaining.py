"""The findings that are left when nothing more is asked: those that nothing tells apart are one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.clearness import clearest_first
from flashverify.campaign.causes.independence import naming

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from flashverify.campaign.causes.companions import Companions
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["not_told_apart"]

_TRIED = "nothing shows that it has a cause of its own, experiments neither"
_UNTRIED = "not told apart: no experiment was possible within the time"


def not_told_apart(
    records: Mapping[Key, FindingRecord],
    leading: Collection[Key],
    companions: Companions,
    no_say: Collection[tuple[Key, Key]],
) -> Iterator[tuple[Key, Key, str]]:
    """Findings that go to another one, each with that, and why in words. A finding with a name leads, then the clearest that was verified.

    Args:
        records: the findings; who iterates folds each at once.
        leading: those that were explained, so that others may go to them.
        companions: what is known of two findings.
        no_say: pairs of a cause and a failure that was put to it, of which it could not be told whether the cause accounts for it.
    """
    for subject in dict.fromkeys(key.subject for key in records):
        found = clearest_first(record for record in records.values() if record.key.subject == subject)
        kept: list[Key] = []
        for record in sorted(found, key=_leading):
            for lead in (records[key] for key in kept if key in leading):
                denied = not {(lead.key, record.key), (record.key, lead.key)} & set(no_say)
                if not companions.independent(record, lead, denied=denied):
                    tried = companions.separations.tried(record.key, lead.key)
                    yield record.key, lead.key, _TRIED if tried else _UNTRIED
                    break
            else:
                kept.append(record.key)


def _leading(record: FindingRecord) -> tuple[bool, bool, bool]:
    return (not naming(record), not record.confirmation.failed, bool(record.not_minimal))
