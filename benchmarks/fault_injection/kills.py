"""Kills at random moments: of the supervisor, of a worker, and Ctrl-C; of toy kernels in forked processes and of real ones by the command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .model import Campaign, Stored, after_the_end, after_the_fault, announced_before, stored
from .processes import Ended, command
from .rows import Row, folder

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["HOW", "random_kills", "real_command", "toy_command"]

HOW = {"kill-supervisor": "supervisor", "kill-worker": "worker", "interrupt": "supervisor"}
"""Ends at random, with the process whose death they are."""
_MOST_COMMANDS = 12
_REAL_LIMIT = 300.0


def random_kills(
    campaign: Campaign,
    how: str,
    kills: int,
    pick: random.Random,
    right: tuple[Stored, float],
    run: Callable[[list[str], Path, Callable[[int], None] | None], Ended],
) -> Row:
    """Tries until so many processes were ended: each ends a campaign once, twice or three times, then gives its command until it is over.

    Args:
        campaign: over toy or real kernels.
        how: key of `HOW`.
        kills: in all.
        pick: when, and how often.
        right: what the undisturbed campaign stores, and its seconds.
        run: gives a command.
    """
    row, role = Row(f"{campaign.name} | {how} | at random"), HOW[how]
    while row.counts["ended"] < kills:
        with folder() as base:
            out, ends, problems = Path(base) / "run", pick.choice((1, 2, 3)), list[tuple[str, str]]()
            commands: list[Ended] = []
            for number in range(_MOST_COMMANDS):
                after, hit = pick.uniform(0.0, 1.1 * right[1]), list[int]()
                disturb = (lambda pid, a=after, h=hit: _end(pid, how, a, pick, h)) if number < ends else None
                commands.append(ended := run(campaign.words, Path(base), disturb))
                row.counts["ended"] += len(hit)
                if ended.code in (0, 1, 2):
                    break
                kind = "interrupt" if how == "interrupt" else "kill-random"
                if hit and role == "supervisor":
                    problems += after_the_fault(kind, role, ended, stored(ended, out), right[0])
            before = announced_before(*commands)
            problems += after_the_end(role, commands[-1], before, stored(commands[-1], out), right[0], out)
            row.add(f"try {row.counts['tries']}", problems)
    row.name = f"{campaign.name} | {how} | {row.counts['ended']} at random"
    return row


def _end(pid: int, how: str, after: float, pick: random.Random, hit: list[int]) -> None:
    """End the supervisor, or one of its workers, so many seconds later, unless it is over by then."""
    deadline = time.monotonic() + after
    while time.monotonic() < deadline:
        if _over(pid):
            return
        time.sleep(0.002)
    with contextlib.suppress(OSError, IndexError):
        if how != "kill-worker":
            os.kill(pid, signal.SIGINT if how == "interrupt" else signal.SIGKILL)
        else:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
            os.kill(int(pick.choice(children)), signal.SIGKILL)
        hit.append(pid)


def _over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def toy_command(words: list[str], base: Path, disturb: Callable[[int], None] | None) -> Ended:
    """The command over toy kernels, in a forked process."""
    return command(words, base, disturb=disturb)


def real_command(words: list[str], base: Path, disturb: Callable[[int], None] | None) -> Ended:
    """The command as a user gives it."""
    with (base / "out").open("w+b") as out, (base / "err").open("w+b") as err:
        process = subprocess.Popen((sys.executable, "-m", "flashverify", *words), cwd=base, stdout=out, stderr=err)
        if disturb is not None:
            disturb(process.pid)
        try:
            code: int | None = process.wait(_REAL_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
    texts = [(base / name).read_text(encoding="utf-8") for name in ("out", "err")]
    return Ended(code, texts[0], texts[1], disturb is not None, (0, 0), ())
