"""Values that are not finite, where a finding about wrong values is at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import told_apart
from flashverify.campaign.causes.independence import holds, needed
from flashverify.campaign.causes.symptoms import symptom
from flashverify.case.text import parse_case
from flashverify.diagnosis.looks import looks
from flashverify.outputs import KERNELS

if TYPE_CHECKING:
    from collections.abc import Collection

    from flashverify.campaign.causes.symptoms import Symptom
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["of_a_step", "overflows"]

_WORDS = "its minimal case needs the same, and shows it with plain values"
_IN_FP16 = "what it rounds to fp16 overflows"


def of_a_step(key: Key, lead: FindingRecord) -> str:
    """Whether values that are not finite in fp16 are of a kernel that seems to round a step to fp16, where large numbers overflow, in words."""
    said = lead.diagnosis
    if (key.check, key.dtype) != ("nonfinite", "fp16") or said is None or said.name or not said.evidence:
        return ""
    together = any({key.output, lead.key.output} <= set(kernel) for kernel in KERNELS)
    return _IN_FP16 if together and any("fp16" in step for step in looks(said.sentence)) else ""


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
    if words := of_a_step(found.key, lead):
        return words
    if found.key.check != "nonfinite" or lead.key.check != "accuracy" or told_apart(found, lead):
        return ""
    if found.not_minimal or lead.not_minimal or not lead.confirmation.failed:
        return ""
    parts = frozenset(part for part in needed(lead) if part.startswith("has "))
    return _WORDS if parts and symptom(lead.key) in shows and holds(parse_case(found.case), parts) else ""
