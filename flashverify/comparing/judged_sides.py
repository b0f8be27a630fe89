"""Both sides judged on the very same cases: first by all checks, then element by element."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.campaign.commands.campaign import campaign_config, run_campaign
from flashverify.campaign.store.writer import open_run
from flashverify.comparing.elements import Elements
from flashverify.comparing.functions import ChangedFunction, changed_functions
from flashverify.comparing.revisions import checked_out
from flashverify.comparing.side_process import side_process
from flashverify.comparing.speed.rounds import timed
from flashverify.errors import NoVerdictError, UsageError
from flashverify.judge.verdict import Status
from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from flashverify.campaign.commands.settings import Settings
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.comparing.side_process import SideProcess
    from flashverify.comparing.sides import Side
    from flashverify.comparing.speed.times import Speeds

__all__ = ["Chosen", "JudgedSides", "judged_sides"]

_DEADLY = ("crash", "hang")
_TRIALS = 2
"""Calls after which a subject has imported what it is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which cases are judged.

    Attributes:
        fixed: the standard matrix and the packaged corpus.
        drawn: so many drawn cases.
        timings: whether both sides are timed; None is on a GPU, where no side is a stored run.
    """

    fixed: bool = True
    drawn: int = 100
    timings: bool | None = None


@dataclass(frozen=True, slots=True)
class JudgedSides:
    """What both sides left.

    Attributes:
        runs: the run folders.
        elements: what became of every element; None where a side is a stored run, which keeps no outputs.
        functions: what changed of the subjects' own modules; None likewise.
        versions: of packages and machine that differ, with both values.
        speeds: time and memory; None where nothing was timed.
    """

    runs: tuple[Path, Path]
    elements: Elements | None = None
    functions: tuple[ChangedFunction, ...] | None = None
    versions: dict[str, tuple[str, str]] | None = None
    speeds: Speeds | None = None


def judged_sides(before: Side, after: Side, settings: Settings, chosen: Chosen) -> JudgedSides:
    """Judge what is not judged yet. A side beside a stored run is judged on the cases of that run.

    Raises:
        UsageError: timings are asked for of a stored run.
        FlashverifyError: a subject cannot be loaded, no case suits both, or nothing can be judged.
    """
    stored_side = next((side for side in (before, after) if side.run is not None), None)
    if chosen.timings and stored_side is not None:
        raise UsageError(f"--timings is not accepted: {stored_side.text!r} is a stored run, which cannot be timed")
    if before.run is not None and after.run is not None:
        return JudgedSides((before.run, after.run))
    judged = next(side for side in (before, after) if side.run is None)
    base = campaign_config("run", replace(settings, subject=None), cases=("fv1",))
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(checked_out(side)) for side in (before, after))
        stored = None if stored_side is None else stored_side.run
        if stored is not None:
            cases = tuple(dict.fromkeys(r.case for r in open_run(stored).results() if r.unsupported is None))
            side = first if judged is before else second
            with side_process(side, base) as process:
                _require_own(side, process, base, cases)
            run = _judge(base, side, "after" if judged is after else "before", cases)
            return JudgedSides((stored, run) if judged is after else (run, stored))
        return _both(first, second, base, chosen)


def _both(before: Side, after: Side, base: CampaignConfig, chosen: Chosen) -> JudgedSides:
    """Two sides that are judged now. Their processes of one case each stay while the campaigns run, idle."""
    with _pair(before, after, base) as (one, other):
        cases = one.cases(fixed=chosen.fixed, drawn=chosen.drawn, seed=base.seed)[: base.max_cases]
        cases = other.accepted(cases)
        if not cases:
            raise NoVerdictError(f"there is no case that both {before.text!r} and {after.text!r} accept")
        _require_own(before, one, base, cases)
        _require_own(after, other, base, cases)
        runs = _judge(base, before, "before", cases), _judge(base, after, "after", cases)
        elements = _measured(one, other, _alive(runs, cases))
        versions = {
            name: (old, new)
            for name in sorted(one.opened.versions.keys() | other.opened.versions.keys())
            if (old := one.opened.versions.get(name, "")) != (new := other.opened.versions.get(name, ""))
        }
        speeds = None
        if chosen.timings or (chosen.timings is None and base.device == "cuda"):
            with side_process(before, base) as again:
                speeds = timed(one, other, again)
        functions = changed_functions(one.functions(), other.functions())
        return JudgedSides(runs, elements, functions, versions, speeds)


@contextlib.contextmanager
def _pair(before: Side, after: Side, base: CampaignConfig) -> Iterator[tuple[SideProcess, SideProcess]]:
    with (
        side_process(before, base) as one,
        side_process(after, base) as other,
    ):
        yield one, other


def _require_own(side: Side, process: SideProcess, base: CampaignConfig, cases: Sequence[str]) -> None:
    """Refuse a copy of a project that the subject is not made of. It may import its kernel in its first call, so that one is made.

    Raises:
        NoVerdictError: none of its modules comes from there.
    """
    if side.folder is None or process.functions():
        return
    with contextlib.suppress(NoVerdictError), side_process(side, base) as trial:  # a case may end its process
        for case in cases[:_TRIALS]:
            trial.ask_for(case)
            trial.measured()
            if trial.functions():
                return
        raise UsageError(
            f"{side.text!r} is not accepted: subject {side.spec!r} imports nothing from there, so that installed code would be judged "
            "in its place; accepted: a copy of the project that the subject comes from, named from within that project"
        )


def _judge(base: CampaignConfig, side: Side, name: str, cases: tuple[str, ...]) -> Path:
    print(
        f"{name}: {side.text}{f' ({side.commit[:12]})' if side.commit else ''}, {plural(len(cases), 'case')}",
        file=sys.stderr,
    )
    config = replace(
        base,
        subjects=(side.spec,),
        out=base.out / name,
        cases=cases,
        shrink=False,
        max_findings=None,
        environment={**base.environment, **side.environment()},
    )
    summary = run_campaign(config, quiet=True)
    if summary.stopped == "interrupted":
        raise SystemExit(summary.exit_code)
    return config.out


def _alive(runs: tuple[Path, Path], cases: Sequence[str]) -> list[str]:
    """The cases that both sides accepted and that ended no process."""
    kept = set(cases)
    for run in runs:
        fine = set()
        for result in open_run(run).results():
            checks = {verdict.check for verdict in result.failures}
            judged = result.unsupported is None and not any(v.status is Status.ERROR for v in result.verdicts)
            if judged and not checks & {*_DEADLY, "exception"}:
                fine.add(result.case)
        kept &= fine
    return [case for case in cases if case in kept]


def _measured(before: SideProcess, after: SideProcess, cases: Sequence[str]) -> Elements:
    """Every case once more on both sides, at the same time."""
    found = Elements()
    for case in cases:
        before.ask_for(case)
        after.ask_for(case)
        old, new = before.measured(), after.measured()
        if isinstance(old, str) or isinstance(new, str):
            found.raised[case] = next(text for text in (new, old) if isinstance(text, str))
        else:
            found.add(case, old, new)
    return found
