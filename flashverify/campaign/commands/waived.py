"""The verdict of a run under a baseline: known findings stand, ratios keep to their ceilings, and what is known but not seen is said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from flashverify.baseline.assessment import assess
from flashverify.campaign.protocol import Judge
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.probe import Probe
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.case.text import parse_case
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import from_hex
from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.baseline.assessment import Assessment
    from flashverify.baseline.entries import Baseline, Known
    from flashverify.campaign.supervisor.engine import Engine
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.judge.record import Summary

__all__ = ["assessed", "lines_under", "summary_under"]

_MOST_REPLAYED = 8


def assessed(baseline: Baseline, engine: Engine, config: CampaignConfig) -> Assessment:
    """What a baseline says of a run that ended; entries that nothing showed are answered by their own case, judged now.

    Raises:
        StoreError: the results cannot be read.
    """
    names = _names(engine, config)
    subjects = set(names) | set(names.values())
    found = assess(baseline, engine.tally.findings(), subjects)
    if any(ceiling.subject in subjects for ceiling in baseline.ceilings):
        found = found.with_ratios(_exceeded(baseline, config, names))
    specs = {name: spec for spec, name in names.items()}
    return found.with_absent(_replayed([entry for entry, _ in found.absent], specs, config))


def _names(engine: Engine, config: CampaignConfig) -> dict[str, str]:
    """The names of the subjects by spec."""
    found = {spec: spec for spec in config.subjects}
    if len(config.subjects) == 1 and len(engine.tally.evidence) == 1:
        found = dict(zip(config.subjects, engine.tally.evidence, strict=True))
    return found | {record.subject_spec: record.key.subject for record in engine.tally.findings()}


def _exceeded(baseline: Baseline, config: CampaignConfig, names: dict[str, str]) -> Iterator[str]:
    """What exceeds a ceiling most, in words, for each of them."""
    specs = {name: spec for spec, name in names.items()}
    worst: dict[int, tuple[float, str]] = {}
    for result in open_run(config.out).results():
        both, dtype = (result.subject, specs.get(result.subject, "")), parse_case(result.case).dtype
        for stats in result.stats:
            ratio = from_hex(stats.worst)
            for number, ceiling in enumerate(baseline.ceilings):
                if text := ceiling.exceeded(both, stats.output, dtype, ratio):
                    rank = math.inf if math.isnan(ratio) else ratio
                    worst[number] = max(worst.get(number, (0.0, "")), (rank, f"{text}: {result.case}"))
    yield from (text for _, (_, text) in sorted(worst.items()))


def _replayed(entries: list[Known], specs: dict[str, str], config: CampaignConfig) -> Iterator[tuple[Known, str]]:
    setup = ProcessSetup(config.toolkit, config.device, config.case_limit, numerics=config.numerics)
    with Probe(setup) as probe:
        for number, entry in enumerate(entries):
            if not entry.case or number >= _MOST_REPLAYED:
                yield entry, "no case of this run showed it"
                continue
            task = Judge(
                specs.get(entry.subject, entry.subject), entry.case, f"only:{entry.check}" if entry.check else "run"
            )
            try:
                result = probe.judge(task).result
            except FlashverifyError as error:
                yield entry, f"its case cannot be judged: {error}"
                continue
            if result.unsupported is not None:
                yield entry, f"the subject does not accept its case: {result.unsupported}"
            elif result.failures:
                yield entry, "no case of this run showed it; its own case still fails"
            else:
                yield entry, "its own case passes: take the entry out of the baseline"


def lines_under(lines: list[str], found: Assessment) -> list[str]:
    """A verdict in words with what the baseline says of it: in its first line, and before the files at its end."""
    parts = [f"{len(found.known)} known"] * bool(found.known) + [f"{len(found.exceeded)} above its ceiling"] * bool(
        found.exceeded
    )
    head = lines[0] + (f" beside the baseline ({', '.join(parts)})" if parts else "")
    if found.exceeded and not found.unknown:
        head = f"FAIL: {plural(len(found.exceeded), 'ratio')} above what the baseline lets stand"
    at = max(number for number, line in enumerate(lines) if line.startswith("run: "))
    return [head, *lines[1:at], *found.lines(), *lines[at:]]


def summary_under(found: Assessment, summary: Summary, errors: int) -> Summary:
    """The summary with the findings and the exit code that the baseline leaves; a run without a verdict stays without one.

    Args:
        found: what the baseline says.
        summary: of the run.
        errors: cases that could not be judged.
    """
    code = summary.exit_code
    if code in (0, 1):
        code = 1 if found.fails else 3 if errors or not summary.covering else 0
    return msgspec.structs.replace(summary, findings=len(found.unknown), exit_code=code)
