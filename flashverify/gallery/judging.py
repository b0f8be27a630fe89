"""One kernel of the gallery, judged by `flashverify fuzz` in a process of its own."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.errors import NoVerdictError
from flashverify.gallery.install import install
from flashverify.gallery.records import Finding, Judged
from flashverify.gallery.selection import version_of

if TYPE_CHECKING:
    from pathlib import Path

    from flashverify.gallery.release import Kernel, Release

__all__ = ["Budget", "judge"]

_GRACE = 600.0
"""Seconds that loading, minimising and the report may take beside the search."""
_LONGEST = 7200.0
"""Seconds that a search without a limit of time may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long one kernel is searched.

    Args:
        minutes: None is any time.
        cases: None is any number.
    """

    minutes: float | None = None
    cases: int | None = None

    def options(self) -> tuple[str, ...]:
        """As the command `fuzz` takes them."""
        given = {"--minutes": self.minutes, "--max-cases": self.cases}
        return tuple(word for name, value in given.items() if value is not None for word in (name, f"{value:g}"))

    def limit(self) -> float:
        """Seconds after which the process is given up."""
        return _LONGEST if self.minutes is None else 60 * self.minutes + _GRACE


def judge(release: Release, kernel: Kernel, budget: Budget, device: str, out: Path) -> Judged:
    """Install the release if need be, and search its kernel; a kernel that cannot be judged is no error."""
    about: dict[str, Any] = {
        "release": release.name,
        "distribution": release.distribution or ("file" if release.file else "torch"),
        "version": version_of(release),
        "licence": release.licence,
        "kernel": kernel.name,
        "what": kernel.what,
    }
    try:
        if release.distribution:
            install(release)
        said = _fuzz(release.spec(kernel), budget, device, _free(out / f"{release.name}-{kernel.name}"))
    except NoVerdictError as error:
        return Judged(**about, verdict=f"not judged: {error}", exit_code=3)
    summary = said["summary"]
    return Judged(
        **about,
        verdict=said["verdict"],
        exit_code=said["exit_code"],
        cases=summary.get("cases", 0),
        covering=summary.get("covering", 0),
        seconds=round(summary.get("seconds", 0.0), 1),
        worst={output: float.fromhex(ratio) for output, ratio in said["worst"].items()},
        findings=tuple(_finding(record) for record in said["findings"]),
    )


def _free(folder: Path) -> Path:
    """The folder, or where an earlier call left a run in it, one with the next free number."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(place for place in itertools.chain((folder,), numbered) if not place.exists())


def _finding(record: dict[str, Any]) -> Finding:
    key = record["key"]
    return Finding(
        title=record["title"],
        failure=record["verdict"]["message"],
        check=key["check"],
        cases=record.get("count", 1),
        case=record["case"],
        replay=record["replay"],
    )


def _fuzz(spec: str, budget: Budget, device: str, out: Path) -> dict[str, Any]:
    """What the search prints as JSON.

    Raises:
        NoVerdictError: it printed none, in words of its own.
    """
    command = (sys.executable, "-m", "flashverify", "fuzz", "--subject", spec, "--json")
    try:
        done = subprocess.run(
            (*command, *budget.options(), "--device", device, "--out", str(out)),
            capture_output=True,
            text=True,
            timeout=budget.limit(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoVerdictError(f"the search did not end within {budget.limit():g} s") from None
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        words = (
            [line for line in lines if line.startswith("flashverify: error: ")]
            or lines[-1:]
            or [f"exit code {done.returncode}"]
        )
        raise NoVerdictError(words[-1].removeprefix("flashverify: error: ")) from None
    return said
