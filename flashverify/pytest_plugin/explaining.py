"""The findings behind the failing cases of a test: made smaller, verified and diagnosed once in a session, whoever sees them first."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
from filelock import FileLock

from flashverify.campaign import toolkit
from flashverify.campaign.causes.sighting import sightings_of
from flashverify.campaign.shrink.shrinker import measure
from flashverify.campaign.store.reproduction import replay_line
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.supervisor.tally import first_record
from flashverify.case.text import parse_case
from flashverify.judge.record import FindingRecord, Folded
from flashverify.report.content import buckets_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.judge.verdict import CaseResult, Key
    from flashverify.pytest_plugin.groups import Group
    from flashverify.pytest_plugin.runtime import Runtime

    _Seen = dict[Key, tuple[CaseResult, Sighting]]

__all__ = ["Explained", "explained", "explained_in"]

_PREFIX = "findings-"
_MOST_CASES = 8
_SWITCHED_OFF = "explaining is switched off (--flashverify-no-explain)"
_SECONDS = 60.0


class Shared(msgspec.Struct, frozen=True):
    """A finding, and the test that explained it."""

    record: FindingRecord
    test: str


class Explained(msgspec.Struct, frozen=True):
    """A finding as a test sees it.

    Attributes:
        record: what is known.
        test: that explained it; `here` where that is this one.
        message: of the failure in this test's own case, and `replay`, the command for that.
    """

    record: FindingRecord
    test: str
    here: bool
    message: str
    replay: str


def explained(runtime: Runtime, group: Group, test: str, failing: Sequence[CaseResult]) -> list[Explained]:
    """The findings that account for the failures of a test.

    Failures that a finding of an earlier test accounts for are not explained again. One that could not be explained stands as it was seen.

    Args:
        runtime: of this process.
        group: whose cases failed.
        test: its name.
        failing: results with failures.
    """
    seen: _Seen = {}
    for result in sorted(failing, key=lambda result: measure(parse_case(result.case))):
        for key, sighting in sightings_of(result).items():
            seen.setdefault(key, (result, sighting))
    file = runtime.folder / f"{_PREFIX}{hashlib.blake2b(group.name.load.encode(), digest_size=8).hexdigest()}.json"
    with FileLock(f"{file}.lock"):
        known = _read(file)
        covered = _covered(known) - _doubted(runtime, group, known, seen)
        unknown = [result.case for key, (result, _) in seen.items() if key not in covered]
        if unknown and runtime.explains:
            made = _campaign(runtime, group, list(dict.fromkeys(unknown))[:_MOST_CASES], number=len(known))
            for record in made:
                if not buckets_of(record) <= covered:
                    _put(known, Shared(record, test))
        covered = _covered(known)
        for key, (result, sighting) in seen.items():
            if key not in covered:
                seen_only = first_record(key, sighting, result.evidence, group.name.shown, 0.0)
                why = seen_only.not_minimal if runtime.explains else _SWITCHED_OFF
                known.append(Shared(msgspec.structs.replace(seen_only, not_minimal=why), test))
        file.write_bytes(msgspec.json.encode(known))
    return [_as_seen(shared, seen, group, test) for shared in known if buckets_of(shared.record) & seen.keys()]


def _put(known: list[Shared], new: Shared) -> None:
    """Add a finding; one with the diagnosis of another is that finding in other outputs and dtypes."""
    name = new.record.diagnosis.name if new.record.diagnosis is not None else ""
    for number, old in enumerate(known):
        if name and old.record.diagnosis is not None and old.record.diagnosis.name == name:
            fresh = sorted(buckets_of(new.record) - buckets_of(old.record))
            message = new.record.verdict.message
            folded = (Folded(key, new.record.case, message, "it has the same diagnosis") for key in fresh)
            record = msgspec.structs.replace(old.record, folded=(*old.record.folded, *folded))
            known[number] = Shared(record, old.test)
            return
    known.append(new)


def explained_in(folder: Path) -> list[FindingRecord]:
    """The findings of a session, from its folder."""
    return [shared.record for file in sorted(folder.glob(f"{_PREFIX}*.json")) for shared in _read(file)]


def _doubted(runtime: Runtime, group: Group, known: Sequence[Shared], seen: _Seen) -> set[Key]:
    """The failures of this test that look like a finding of another one which may stand, but are not diagnosed as that.

    What may stand is not to hide anything else, so each of its failures is diagnosed anew.
    """
    if runtime.baseline is None or not runtime.explains:
        return set()
    causes: dict[Key, set[str]] = {}
    for shared in known:
        entry = runtime.baseline.known_as(shared.record)
        for key in buckets_of(shared.record) & seen.keys():
            causes.setdefault(key, set()).add("" if entry is None else entry.cause)
    return {
        key
        for key, names in causes.items()
        if "" not in names and runtime.cause_of(group, seen[key][1].case, key) not in names
    }


def _read(file: Path) -> list[Shared]:
    return msgspec.json.decode(file.read_bytes(), type=list[Shared]) if file.exists() else []


def _covered(known: Iterable[Shared]) -> set[Key]:
    return {key for shared in known for key in buckets_of(shared.record)}


def _as_seen(shared: Shared, seen: _Seen, group: Group, test: str) -> Explained:
    key = min(buckets_of(shared.record) & seen.keys(), key=lambda key: measure(parse_case(seen[key][1].case)))
    result, sighting = seen[key]
    own = first_record(key, sighting, result.evidence, group.name.shown, 0.0)
    return Explained(shared.record, shared.test, shared.test == test, sighting.verdict.message, replay_line(own))


def _campaign(runtime: Runtime, group: Group, cases: Sequence[str], *, number: int) -> tuple[FindingRecord, ...]:
    """The findings of a run over some cases, in processes of its own."""
    config = CampaignConfig(
        kind="run",
        subjects=(group.name.load,),
        out=runtime.scratch / f"run-{number}",
        device=runtime.device,
        workers=1,
        cases=tuple(cases),
        explain_seconds=_SECONDS,
        repeats=1,
        case_limit=runtime.case_limit,
        toolkit=toolkit.BUNDLED,
        numerics=runtime.numerics,
        environment=runtime.variables,
    )
    engine = Engine(config)
    engine.run()
    found = engine.tally.findings()
    return tuple(msgspec.structs.replace(record, subject_spec=group.name.shown) for record in found)
