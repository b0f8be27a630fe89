"""The findings of several shards as those of one run: what has one cause is one finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.diagnoses import agreed, alike, heard, same_defect
from flashverify.campaign.shrink.shrinker import measure
from flashverify.case.text import parse_case
from flashverify.judge.record import Folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["merge_findings"]


def merge_findings(shards: Sequence[Iterable[FindingRecord]]) -> list[FindingRecord]:
    """One record per cause.

    Findings of one bucket are one finding, unless their diagnoses name different defects. A finding is folded into another one whose
    diagnosis names the same defect, or whose shard has found it to have that cause; what is diagnosed otherwise stays apart.

    Args:
        shards: the findings of each, in the order of the shards. The result does not depend on anything else.
    """
    merged: list[FindingRecord] = []
    for record in sorted(_by_bucket(shards), key=_rank):
        place = next((n for n, cause in enumerate(merged) if _why(cause, record)), None)
        if place is None:
            merged.append(record)
        else:
            merged[place] = _fold(merged[place], record)
    return _owned_once(merged)


def _by_bucket(shards: Sequence[Iterable[FindingRecord]]) -> list[FindingRecord]:
    """One record per bucket, and further ones, as further causes, for other defects that look alike."""
    found: dict[Key, FindingRecord] = {}
    for records in shards:
        for record in sorted(records, key=lambda each: each.key):
            key = record.key
            while key in found and _contradict(found[key], record):
                key = msgspec.structs.replace(key, cause=key.cause + 1)
            record = msgspec.structs.replace(record, key=key)
            found[key] = _joined(found[key], record) if key in found else record
    return list(found.values())


def _contradict(a: FindingRecord, b: FindingRecord) -> bool:
    """Whether diagnoses name different defects; conditions follow from the few cases of a shard and tell no two defects apart."""
    if a.diagnosis is None or b.diagnosis is None or not (a.diagnosis.name and b.diagnosis.name):
        return False
    bare = [msgspec.structs.replace(each, conditions=()) for each in (a.diagnosis, b.diagnosis)]
    return not same_defect(*bare)


def _rank(record: FindingRecord) -> tuple[bool, bool, bool, tuple[int, int, str], Key]:
    """Lower is what stands for a cause: verified, with a name, minimal, small."""
    named = record.diagnosis is not None and bool(record.diagnosis.name)
    size = measure(parse_case(record.case))
    return (not record.confirmation.failed, not named, bool(record.not_minimal), size, record.key)


def _joined(a: FindingRecord, b: FindingRecord) -> FindingRecord:
    """Two findings of one bucket and one cause."""
    best = min(a, b, key=_rank)
    first = min(a, b, key=lambda each: each.seconds)
    return msgspec.structs.replace(
        best,
        first=first.first,
        first_map=first.first_map,
        seconds=first.seconds,
        count=a.count + b.count,
        folded=_all_folded((*a.folded, *b.folded)),
    )


def _all_folded(folded: Iterable[Folded]) -> tuple[Folded, ...]:
    """Each bucket once, with all its cases."""
    found: dict[Key, Folded] = {}
    for each in folded:
        known = found.get(each.key)
        found[each.key] = each if known is None else msgspec.structs.replace(known, count=known.count + each.count)
    return tuple(found.values())


def _why(cause: FindingRecord, record: FindingRecord) -> str:
    """Why a finding has the cause of another one, in words; empty where it has not."""
    if cause.key.subject != record.key.subject or _contradict(cause, record):
        return ""
    if alike(record.key, record.diagnosis, (cause,)):
        return "the same diagnosis"
    known = {each.key for each in cause.folded}, {each.key for each in record.folded}
    return "another shard found them to have one cause" if record.key in known[0] or cause.key in known[1] else ""


def _fold(cause: FindingRecord, record: FindingRecord) -> FindingRecord:
    own = Folded(record.key, record.first, record.verdict.message, _why(cause, record), record.count)
    folded = [each for each in cause.folded if each.key != record.key]
    folded += [own, *(each for each in record.folded if each.key != cause.key)]
    diagnosis = cause.diagnosis
    if diagnosis is not None and record.diagnosis is not None and diagnosis.name and record.diagnosis.name:
        diagnosis = agreed(diagnosis, record.diagnosis)
    else:
        diagnosis = heard(cause, record)
    return msgspec.structs.replace(
        cause,
        folded=_all_folded(folded),
        diagnosis=diagnosis,
        seconds=min(cause.seconds, record.seconds),
    )


def _owned_once(merged: list[FindingRecord]) -> list[FindingRecord]:
    """No bucket has two owners, and none that is a finding of its own has another one."""
    owned = {record.key for record in merged}
    found = []
    for record in merged:
        folded = tuple(each for each in record.folded if each.key not in owned)
        owned |= {each.key for each in folded}
        found.append(msgspec.structs.replace(record, folded=folded))
    return found
