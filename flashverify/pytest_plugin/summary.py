"""The end of a session: what was judged, and what the baseline says of it."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

from flashverify.baseline.additions import add_entries, entry_of, ratio_entry
from flashverify.baseline.reading import NAME
from flashverify.campaign.card.content import card_of
from flashverify.ci.github import annotation_lines, in_github
from flashverify.judge.record import THIN
from flashverify.judge.wording import plural
from flashverify.pytest_plugin.explaining import explained_in
from flashverify.pytest_plugin.seen import Seen
from flashverify.pytest_plugin.stash import folder_of, runtime_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from flashverify.baseline.entries import Baseline

__all__ = ["write_summary"]


def write_summary(reporter: Any, config: pytest.Config) -> None:
    """A section of a few lines; nothing where no case was judged."""
    seen = Seen.read(folder_of(config))
    if not seen.subjects:
        return
    reporter.write_sep("=", "flashverify")
    for line in (*seen.lines(), *_thin(seen), *_baseline_lines(seen, runtime_of(config).baseline)):
        reporter.write_line(line)
    for line in _github_lines(config):
        reporter.write_line(line)
    if config.getoption("--flashverify-update-baseline"):
        reporter.write_line(_updated(seen, config))


def _github_lines(config: pytest.Config) -> list[str]:
    """Annotations for the findings of the session, where this runs in GitHub Actions."""
    if not in_github(os.environ):
        return []
    baseline = runtime_of(config).baseline
    found = [
        (card_of(record), baseline.known_as(record) if baseline is not None else None)
        for record in explained_in(folder_of(config))
    ]
    return annotation_lines(found, (), config.rootpath)


def _thin(seen: Seen) -> Iterator[str]:
    for name, entry in sorted(seen.subjects.items()):
        if entry.covering < THIN and not entry.failed:
            yield f"{name}: thin, fewer than {THIN} covering cases are no more than a first look"


def _baseline_lines(seen: Seen, baseline: Baseline | None) -> Iterator[str]:
    for number, entry in enumerate(baseline.known if baseline is not None else ()):
        if entry.subject not in seen.subjects or number in seen.met:
            continue
        fixed = number in seen.fixed
        why = (
            "its own case passes: take the entry out of the baseline" if fixed else "no case of this session showed it"
        )
        yield f"known, not seen: {entry.title} ({entry.link}): {why}"


def _updated(seen: Seen, config: pytest.Config) -> str:
    """Append what the baseline does not know to its file, and say so."""
    baseline, today = runtime_of(config).baseline, datetime.datetime.now(datetime.UTC).date()
    unknown = [
        record for record in explained_in(folder_of(config)) if baseline is None or baseline.known_as(record) is None
    ]
    held = {(ceiling.subject, ceiling.output, ceiling.dtype) for ceiling in (baseline.ceilings if baseline else ())}
    ratios = [
        ratio_entry(name, output, dtype, ratio.value, today)
        for name, entry in sorted(seen.subjects.items())
        for (output, dtype), ratio in sorted((tuple(key.split()), ratio) for key, ratio in entry.worst.items())
        if 0 < ratio.value <= 1 and (name, output, dtype) not in held
    ]
    given = config.getoption("--flashverify-baseline")
    path = baseline.path if baseline is not None else config.rootpath / (given or NAME)
    if not unknown and not ratios:
        return f"{path}: nothing to add"
    add_entries(path, [*(entry_of(record, today) for record in unknown), *ratios])
    counts = [plural(len(each), name) for each, name in ((unknown, "failure"), (ratios, "ratio")) if each]
    told = f"{' and '.join(counts)} added"
    return f"{path}: {told}" + "; each failure is refused until you give it a reason and a link" * bool(unknown)
