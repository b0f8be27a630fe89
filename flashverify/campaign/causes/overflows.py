"""Values that are not finite, where a finding about wrong values is at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import told_apart
from flashverify.campaign.causes.independence import holds, needed
from flashverify.campaign.causes.symptoms import symptom
from flashverify.case.text import parse_case

if TYPE_CHECKING:
    from collections.abc import Collection

    from flashverify.campaign.causes.symptoms import Symptom
    from flashverify.judge.record import FindingRecord

__all__ = ["overflows"]

_WORDS = "its minimal case needs the same, and shows it with plain values"


def overflows(found: FindingRecord, lead: FindingRecord, shows: Collection[Symptom]) -> str:
    """Whether values of an explained finding are not finite because another one is at work, in words; empty where nothing says so.

    A number that is not finite hides how wrong a value is otherwise, so that the two are never seen on one case.

    Args:
        found: whose minimal case has values that are not finite.
        lead: a finding about wrong values, which is no part of what a name tells apart.
        shows: what the minimal case of `found` shows, with plain values too.

    Returns:
        Words where the minimal case has all parts that the other one needs, of which there are some, and shows that one.
    """
    if found.key.check != "nonfinite" or lead.key.check != "accuracy" or told_apart(found, lead):
        return ""
    if found.not_minimal or lead.not_minimal or not lead.confirmation.failed:
        return ""
    parts = frozenset(part for part in needed(lead) if part.startswith("has "))
    return _WORDS if parts and symptom(lead.key) in shows and holds(parse_case(found.case), parts) else ""
