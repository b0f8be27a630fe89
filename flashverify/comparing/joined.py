"""Two runs joined case by case. Of every result only what a comparison needs is kept, some hundred bytes."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.errors import NoVerdictError
from flashverify.judge.verdict import CaseResult, Status, Verdict, from_hex
from flashverify.report.aggregate import outcome
from flashverify.report.group import stats_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.store.reader import StoredRun
    from flashverify.judge.record import RunRecord

__all__ = ["Identity", "Joined", "Pair", "Place", "Seen", "changed_settings", "join", "notes_about"]

_JUDGED = (Status.PASS, Status.FAIL, Status.EXEMPT)
_VOID = -1.0  # no element of the output was judged; ratios are never negative
Place = tuple[str, str]
"""Output and mode."""
Identity = tuple[str, str, str]
"""Check, error and output: two failures of a case with the same identity are the same failure."""
_Layouts = dict[tuple[Place, ...], tuple[Place, ...]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run said of a case; `verdicts` are the failing ones, `signed` the mean signed ratios, NaN where there is none."""

    status: Status
    coverage: bool
    places: tuple[Place, ...]
    values: array[float]
    signed: array[float]
    verdicts: tuple[Verdict, ...]

    @property
    def judged(self) -> bool:
        """Whether anything was said about the case."""
        return self.status in _JUDGED

    @property
    def ratios(self) -> dict[Place, float]:
        """The worst ratio of each output that has judged elements."""
        return {place: value for place, value in zip(self.places, self.values, strict=True) if value != _VOID}

    @property
    def biases(self) -> dict[Place, float]:
        """The mean signed ratio of each output that has one."""
        return {place: value for place, value in zip(self.places, self.signed, strict=True) if not math.isnan(value)}

    @property
    def failures(self) -> dict[Identity, str]:
        """The failures and their messages; an output beyond its bound is one, whatever the verdicts say."""
        if not self.verdicts and all(value <= 1 for value in self.values):
            return {}
        found = {
            ("accuracy", "bound", output): f"{output} is outside its bound, {mode}"
            for (output, mode), ratio in self.ratios.items()
            if not ratio <= 1
        }
        return found | {(v.check, v.error, v.output): v.message for v in self.verdicts}


@dataclass(frozen=True, slots=True)
class Pair:
    """A case that both runs hold; `subject` is its name in the later one."""

    subject: str
    case: str
    before: Seen
    after: Seen


@dataclass(frozen=True, slots=True)
class Joined:
    """The common cases, and the (subject, case) that only one run holds.

    Args:
        renamed: the subject's two names, where they differ.
        evidence: by subject, what its cases ran on before and after.
    """

    pairs: tuple[Pair, ...]
    only_before: tuple[tuple[str, str], ...]
    only_after: tuple[tuple[str, str], ...]
    renamed: tuple[str, str] | None
    evidence: dict[str, tuple[str, str]]


def join(before: StoredRun, after: StoredRun) -> Joined:
    """Join by subject and case text. Where each run has one subject, the two are the same under whatever name.

    Raises:
        NoVerdictError: the runs have no subject or no case in common.
        StoreError: results cannot be read.
    """
    layouts: _Layouts = {}
    ran_before: dict[str, set[str]] = {}
    ran_after: dict[str, set[str]] = {}
    old, new = dict(_load(before, layouts, ran_before)), dict(_load(after, layouts, ran_after))
    names_before, names_after = ({subject for subject, _ in table} for table in (old, new))
    if not names_before or not names_after:
        raise NoVerdictError(f"{(after if names_before else before).path} holds no results: nothing can be compared")
    renamed = None
    if not names_before & names_after:
        if len(names_before) > 1 or len(names_after) > 1:
            raise NoVerdictError(f"no common subject: {sorted(names_before)} before, {sorted(names_after)} after")
        renamed = (names_before.pop(), names_after.pop())
        old = {(renamed[1], case): seen for (_, case), seen in old.items()}
        ran_before = {renamed[1]: ran_before.get(renamed[0], set())}
    common = sorted(old.keys() & new.keys())
    if not common:
        raise NoVerdictError(f"no common case: {len(old)} cases before, {len(new)} after")
    return Joined(
        pairs=tuple(Pair(*key, old[key], new[key]) for key in common),
        only_before=tuple(sorted(old.keys() - new.keys())),
        only_after=tuple(sorted(new.keys() - old.keys())),
        renamed=renamed,
        evidence={
            subject: (", ".join(sorted(ran_before[subject])), ", ".join(sorted(ran_after[subject])))
            for subject in sorted(ran_before.keys() & ran_after.keys())
        },
    )


def changed_settings(before: RunRecord, after: RunRecord, joined: Joined) -> dict[str, tuple[str, str]]:
    """What differs of evidence, forms and environment, with its two values."""
    both = {f"evidence of {subject}": values for subject, values in joined.evidence.items()}
    for subject in sorted({pair.subject for pair in joined.pairs}):
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


def _load(run: StoredRun, layouts: _Layouts, ran: dict[str, set[str]]) -> Iterator[tuple[tuple[str, str], Seen]]:
    for result in run.results():
        if result.evidence and result.unsupported is None:
            ran.setdefault(result.subject, set()).add(result.evidence)
        yield (result.subject, result.case), _seen(result, layouts)


def _seen(result: CaseResult, layouts: _Layouts) -> Seen:
    places = tuple((s.output, s.mode) for s in result.stats)
    ratios = (stats_ratio(s) for s in result.stats)
    return Seen(
        status=outcome(result),
        coverage=result.coverage,
        places=layouts.setdefault(places, places),
        values=array("d", (_VOID if r is None else math.nan if r < 0 else r for r in ratios)),
        signed=array("d", (from_hex(s.signed) if s.signed else math.nan for s in result.stats)),
        verdicts=result.failures,
    )
