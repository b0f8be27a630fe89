"""Failures by key, what a campaign saw of them, and a book of their causes."""

import msgspec

from flashverify.campaign.causes.book import CauseBook
from flashverify.campaign.causes.reservoir import Reservoir
from flashverify.campaign.causes.sighting import Sighting
from flashverify.judge.record import Confirmation, FindingRecord
from flashverify.judge.verdict import CaseResult, Key, OutputStats, Status, Verdict

OUT, DK = Key("k", "accuracy", "bound", "o", "fp16"), Key("k", "accuracy", "bound", "dk", "fp16")
TOUCHED = Key("k", "memory", "touched", "o", "fp16")
CAUSE = frozenset({("accuracy", "bound", "o")})


def failing(key):
    return Verdict(check=key.check, status=Status.FAIL, error=key.error, output=key.output)


def seen(company, case, *keys, outputs=("o", "dk"), times=1):
    verdicts = (
        *map(failing, keys),
        *(Verdict(check=check, status=Status.PASS) for check in ("accuracy", "memory", "sanitizer")),
    )
    stats = tuple(OutputStats(output, "end-to-end", 4) for output in outputs)
    for _ in range(times):
        company.add(CaseResult(case, "k", "cpu", verdicts, stats))


def book(company, *keys, diagnosis=None, failed=3):
    """The first key is a cause that was explained, the others wait."""
    records, reservoir = {}, Reservoir()
    for key in keys:
        reservoir.lead(Sighting(key, "fv1", failing(key)))
        records[key] = FindingRecord(key, "fv1", "fv1", failing(key), "cpu", "k")
    records[keys[0]] = msgspec.structs.replace(
        records[keys[0]], confirmation=Confirmation(3, failed), diagnosis=diagnosis
    )
    return CauseBook(records, {}, reservoir, company), records
