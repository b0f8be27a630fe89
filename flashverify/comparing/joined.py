"""Two runs joined case by case, as columns. Single cases are looked at one by one only where a failure came or went."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashverify.comparing.blocks import Block, blocks_of
from flashverify.comparing.loaded import load
from flashverify.comparing.pair import Pair, Seen
from flashverify.errors import NoVerdictError
from flashverify.judge.verdict import Status
from flashverify.report.columns import STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from flashverify.campaign.store.reader import StoredRun
    from flashverify.comparing.loaded import Integers, Loaded
    from flashverify.judge.record import RunRecord

    Flags = NDArray[np.bool_]

__all__ = ["Joined", "changed_settings", "join", "notes_about"]

_JUDGED = [status in (Status.PASS, Status.FAIL, Status.EXEMPT) for status in STATUSES]
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that subjects of one case have different keys."""


@dataclass(frozen=True)
class Joined:
    """The common cases, in the order of the later run, and the (subject, case) that only one run holds.

    Args:
        before, after: the runs.
        rows_before, rows_after: a row of each for every common case.
        renamed: the subject's two names, where they differ.
        evidence: by subject, what its cases ran on before and after.
    """

    before: Loaded
    after: Loaded
    rows_before: Integers
    rows_after: Integers
    only_before: tuple[tuple[str, str], ...]
    only_after: tuple[tuple[str, str], ...]
    renamed: tuple[str, str] | None
    evidence: dict[str, tuple[str, str]]

    def __len__(self) -> int:
        return len(self.rows_after)

    def close(self) -> None:
        """Release the files of both runs."""
        self.before.close()
        self.after.close()

    @property
    def subjects(self) -> list[str]:
        """Of the common cases, by their names in the later run."""
        return sorted(self.after.subjects[n] for n in np.flatnonzero(np.bincount(self.after.subject[self.rows_after])))

    @functools.cached_property
    def judged(self) -> Flags:
        """The common cases about which both runs said something."""
        judged = np.array(_JUDGED)
        found: Flags = judged[self.statuses[0]] & judged[self.statuses[1]]
        return found

    @functools.cached_property
    def statuses(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Before and after, of each common case."""
        return self.before.statuses[self.rows_before], self.after.statuses[self.rows_after]

    @property
    def covering(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Which common cases count as coverage, before and after."""
        return self.before.covering[self.rows_before], self.after.covering[self.rows_after]

    @functools.cached_property
    def failing(self) -> tuple[Flags, Flags]:
        """Which common cases have a failure, before and after."""
        return _failing(self.before)[self.rows_before], _failing(self.after)[self.rows_after]

    @functools.cached_property
    def blocks(self) -> list[Block]:
        """The common cases that both runs judged."""
        return blocks_of(self.before, self.after, self.rows_before[self.judged], self.rows_after[self.judged])

    def pairs(self, chosen: Flags) -> Iterator[Pair]:
        """Those of the common cases that are chosen."""
        for old, new in zip(self.rows_before[chosen].tolist(), self.rows_after[chosen].tolist(), strict=True):
            yield Pair(Seen(self.before, old), Seen(self.after, new))


def _failing(run: Loaded) -> Flags:
    """The rows with a failing verdict, or a ratio that is not within its bound."""
    found: Flags = np.array([bool(failures) for failures in run.failures])[run.failed]
    beyond = np.flatnonzero(~(run.values <= 1))
    found[np.searchsorted(run.starts, beyond, side="right") - 1] = True
    return found


def join(before: StoredRun, after: StoredRun) -> Joined:
    """Join by subject and case text. Where each run has one subject, the two are the same under whatever name.

    Raises:
        NoVerdictError: the runs have no subject or no case in common.
        StoreError: results cannot be read.
    """
    old, new = load(before), load(after)
    if not old.subjects or not new.subjects:
        raise NoVerdictError(f"{(after if old.subjects else before).path} holds no results: nothing can be compared")
    renamed, names = None, old.subjects
    if not set(old.subjects) & set(new.subjects):
        if len(old.subjects) > 1 or len(new.subjects) > 1:
            raise NoVerdictError(
                f"no common subject: {sorted(old.subjects)} before, {sorted(new.subjects)} after",
            )
        renamed, names = (old.subjects[0], new.subjects[0]), new.subjects
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*names, *new.subjects]))}
    (old_keys, old_rows), (new_keys, new_rows) = _unique(old, names, numbers), _unique(new, new.subjects, numbers)
    found = np.minimum(np.searchsorted(old_keys[:, 0], new_keys[:, 0]), len(old_keys) - 1)
    same = (old_keys[found] == new_keys).all(1)
    if not same.any():
        raise NoVerdictError(f"no common case: {len(old_rows)} cases before, {len(new_rows)} after")
    order = np.argsort(new_rows[same])
    alone = np.ones(len(old_rows), bool)
    alone[found[same]] = False
    return Joined(
        before=old,
        after=new,
        rows_before=old_rows[found[same]][order],
        rows_after=new_rows[same][order],
        only_before=_named(old, old_rows[alone], names),
        only_after=_named(new, new_rows[~same], new.subjects),
        renamed=renamed,
        evidence=_evidence(old, new, renamed),
    )


def _evidence(old: Loaded, new: Loaded, renamed: tuple[str, str] | None) -> dict[str, tuple[str, str]]:
    ran = old.evidence if renamed is None else {renamed[1]: old.evidence.get(renamed[0], set())}
    both = sorted(ran.keys() & new.evidence.keys())
    return {name: (", ".join(sorted(ran[name])), ", ".join(sorted(new.evidence[name]))) for name in both}


def _unique(run: Loaded, names: list[str], numbers: dict[str, int]) -> tuple[NDArray[np.uint64], Integers]:
    """The keys of all cases with their subjects, in ascending order, and the last row of each."""
    subject = np.array([numbers[name] for name in names], np.uint64)[run.subject]
    keys = run.keys.copy()
    keys[:, 0] += (subject + np.uint64(1)) * _MIX
    order = np.argsort(keys[:, 0], kind="stable")
    keys = keys[order]
    last = np.ones(len(keys), bool)
    last[:-1] = (keys[1:] != keys[:-1]).any(1)
    return keys[last], order[last]


def _named(run: Loaded, rows: Integers, names: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((names[run.subject[row]], run.result(row).case) for row in sorted(rows.tolist())))


def changed_settings(before: RunRecord, after: RunRecord, joined: Joined) -> dict[str, tuple[str, str]]:
    """What differs of evidence, forms and environment, with its two values."""
    both = {f"evidence of {subject}": values for subject, values in joined.evidence.items()}
    for subject in joined.subjects:
        old = joined.renamed[0] if joined.renamed else subject
        both[f"form of {subject}"] = (before.form.get(old, ""), after.form.get(subject, ""))
    for name in sorted(before.environment.keys() | after.environment.keys()):
        both[name] = (before.environment.get(name, ""), after.environment.get(name, ""))
    return {name: values for name, values in both.items() if values[0] != values[1]}


def notes_about(before: StoredRun, after: StoredRun, joined: Joined) -> Iterator[str]:
    """What a reader must know of the two runs."""
    if joined.renamed:
        yield f"the subject is called {joined.renamed[0]} before and {joined.renamed[1]} after"
    for name, run in (("earlier", before), ("later", after)):
        if run.summary is None:
            yield f"the {name} run has not ended"
        yield from (f"the {name} run: {problem}" for problem in run.problems)
