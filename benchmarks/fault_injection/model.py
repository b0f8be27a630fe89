"""What must hold after a fault, and after the same command was given again."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.campaign.store.reader import open_run
from flashverify.case.text import parse_case
from flashverify.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .processes import Ended

__all__ = ["CAMPAIGNS", "COLUMNS", "Campaign", "Stored", "after_the_end", "after_the_fault", "stored"]

COLUMNS = ("lost", "twice", "refused", "exit", "message", "damaged", "left")
"""`lost`: cases of the undisturbed run and announced findings that are not stored. `twice`: results beyond those. `refused`: the repeated
command did not end as the undisturbed one did. `exit`: another exit code than documented, or a verdict over a part. `message`: a
traceback, or an error that is not one line with its reason. `damaged`: a half-written record where none is allowed. `left`: temporary
files or notes after the end."""
_SHARED = "--device cpu --workers 1 --no-report --out run"
_TORN = ("torn-full", "short", "kill-torn")


@dataclass(frozen=True)
class Campaign:
    """A short campaign over toy kernels."""

    name: str
    line: str

    @property
    def words(self) -> list[str]:
        """Its command line."""
        return f"{self.line} {_SHARED}".split()


CAMPAIGNS = {
    each.name: each
    for each in (
        Campaign("search", "fuzz --subject tail --max-cases 10 --seed 3 --no-corpus"),
        Campaign("matrix", "run --subject everything --max-cases 8"),
        Campaign("clean", "fuzz --subject clean --max-cases 12 --seed 3 --no-corpus"),
    )
}


REAL = Campaign("real", "fuzz --subject torch-cpu --max-cases 10 --seed 3 --no-corpus --no-shrink")
"""A kernel of torch."""


@dataclass(frozen=True)
class Stored:
    """What a run folder holds.

    Args:
        code: exit code of its command.
        cases: by origin and text.
        findings: their buckets, those that are folded among them.
        failures: buckets of the results.
        problems: what is damaged, in words.
    """

    code: int | None
    cases: Counter[tuple[str, str]]
    findings: frozenset[str]
    failures: frozenset[str]
    problems: tuple[str, ...]

    @property
    def of_origins(self) -> Counter[str]:
        """Cases by origin."""
        return Counter(origin for origin, _ in self.cases.elements())


def stored(ended: Ended, run: Path) -> Stored:
    """What a copy of the folder says to a reader; readers put aside what is damaged."""
    with tempfile.TemporaryDirectory(dir=run.parent) as folder:
        copy = shutil.copytree(run, Path(folder) / "run") if run.exists() else Path(folder)
        try:
            found = open_run(copy)
            results = list(found.results())
        except StoreError as error:
            return Stored(ended.code, Counter(), frozenset(), frozenset(), (str(error),))
        cases = Counter((result.origin, result.case) for result in results)
        failures = {v.key(r.subject, parse_case(r.case).dtype).slug() for r in results for v in r.failures}
        findings = {each.record.key.slug() for each in found.findings}
        findings |= {folded.key.slug() for each in found.findings for folded in each.record.folded}
        return Stored(ended.code, cases, frozenset(findings), frozenset(failures), tuple(found.problems))


def _announced(ended: Ended) -> set[str]:
    return {line.removeprefix("found ") for line in ended.told if line.startswith("found ")}


def after_the_fault(kind: str, role: str, ended: Ended, now: Stored, undisturbed: Stored) -> Iterator[tuple[str, str]]:
    """What is wrong, with the column that counts it."""
    killed = role == "supervisor" and kind.startswith(("kill-", "power-"))
    yield from _words(ended)
    for bucket in sorted(_announced(ended) - now.findings):
        yield "lost", f"the announced finding {bucket}"
    for bucket in sorted(now.failures - now.findings):
        yield "lost", f"the finding {bucket} of a stored result"
    for problem in now.problems:
        torn = problem == "results.jsonl: 1 damaged line(s) ignored" and (kind in _TORN or kind.startswith("power-"))
        no_run = "has no run.json" in problem and not now.cases
        if not torn and not no_run:
            yield "damaged", problem
    if kind == "interrupt":  # a signal before the campaign begins ends the process as signals do
        if ended.code not in (130, -2):
            yield "exit", f"{ended.code} after Ctrl-C: {ended.err.strip()[-300:]}"
        return
    if killed:
        if ended.code != -9:
            yield "exit", f"{ended.code} of a killed process"
        return
    if ended.code in (0, 1):
        yield from _complete(role, ended, now, undisturbed)
        return
    reason = {"full": "No space left", "torn-full": "No space left", "error": "Input/output error"}.get(kind)
    if ended.code != 3 or reason is None:
        yield "exit", f"{ended.code}: {ended.err.strip()[-300:]}"
    elif reason not in (ended.err.strip().splitlines() or [""])[-1]:
        yield "message", ended.err.strip()[-300:]
    if "PASS" in ended.out:
        yield "exit", f"PASS with {ended.code}"


def after_the_end(
    role: str, ended: Ended, before: set[str], now: Stored, undisturbed: Stored, run: Path
) -> Iterator[tuple[str, str]]:
    """What is wrong once a command ended by itself; `before` are lines that were told before."""
    yield from _words(ended)
    if ended.code == 2 and "holds a finished run" in ended.err:  # the verdict was on the disk when the process died
        yield from _complete(role, dataclasses.replace(ended, code=undisturbed.code), now, undisturbed)
    elif ended.code not in (0, 1):
        yield "refused", f"{ended.code}: {ended.err.strip()[-300:]}"
    else:
        yield from _complete(role, ended, now, undisturbed)
    for bucket in sorted((before | _announced(ended)) - now.findings):
        yield "lost", f"the announced finding {bucket}"
    left = [str(path.relative_to(run)) for path in run.rglob("*") if path.name.endswith(".tmp")]
    left += [str(path.relative_to(run)) for path in (run / "inflight").glob("*")]
    if left and ended.code != 2:
        yield "left", ", ".join(sorted(left))


def announced_before(*commands: Ended) -> set[str]:
    """Buckets that commands announced."""
    return set().union(*map(_announced, commands))


def _words(ended: Ended) -> Iterator[tuple[str, str]]:
    if ended.code is None:
        yield "exit", "it hung"
    if "Traceback" in ended.err + ended.out:
        yield "message", (ended.err + ended.out)[-600:]
    elif ended.err.count("flashverify: error:") > 1:
        yield "message", ended.err[-600:]


def _complete(role: str, ended: Ended, now: Stored, undisturbed: Stored) -> Iterator[tuple[str, str]]:
    """A verdict stands on every planned case. Where a worker died, its case tells the search nothing, so that others may be drawn."""
    of_worker = role == "worker"
    a, b = (undisturbed.of_origins, now.of_origins) if of_worker else (undisturbed.cases, now.cases)
    lost, twice = a - b, b - a  # type: ignore[operator]
    if of_worker:  # the case of an explanation over which a worker died counts, and one is drawn less
        instead = twice.pop("", 0)
        if 0 < lost.total() <= instead:
            lost.clear()
    if lost:
        yield "lost", f"{lost.total()} cases: {list(lost.items())[:3]}"
    if twice:
        yield "twice", f"{twice.total()} results: {list(twice.items())[:3]}"
    if again := [each for each, count in now.cases.items() if count > 1]:
        yield "twice", f"{again[:3]}"
    crash = of_worker and any("crash" in bucket for bucket in now.findings)
    if ended.code != (1 if crash else undisturbed.code):
        yield "exit", f"{ended.code} in place of {undisturbed.code}"
    if of_worker:
        return
    if missing := undisturbed.findings - now.findings:
        yield "lost", f"findings {sorted(missing)}"
    if more := now.findings - undisturbed.findings:
        yield "twice", f"findings {sorted(more)}"
