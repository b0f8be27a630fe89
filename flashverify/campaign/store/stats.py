"""stats.json: what a campaign on a GPU compiled, and where the time of its workers went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.store.files import read_capped, write_atomic
from flashverify.errors import StoreError
from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LATER", "Stats", "read_stats", "stats_sentence", "write_stats"]

_STATS = "stats.json"
LATER = 120.0
"""Seconds after which the compilations per thousand cases are counted once more."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one call.

    Attributes:
        seconds: wall clock.
        workers: processes that judge.
        compilers: processes that compile ahead.
        cases: judged.
        unasked: those among them that were judged without a check that asks for a kernel which was not compiled.
        compiled: kernels that were compiled, and functions that torch compiled, with their kernels one each.
        compiled_by_workers: those among them for which a worker waited.
        traced: the functions among them, and backwards that torch compiled apart.
        per_thousand_cases: compiled kernels per thousand cases.
        later_per_thousand_cases: the same from `LATER` seconds on; None before that.
        shares: of the workers' time: `compiling`, `oracle`, `judging` (the subject and the checks), `explaining` (findings) and `idle`
            (starting, drawing, putting off and waiting).
        kinds: kinds of cases that are compiled; of a subject that torch traces, added up over the workers.
        put_off: drawn cases that had to wait for a kernel.
        dropped: those among them that were never judged, because others cover more.
        waiting: cases of the corpus and drawn ones that still wait.
        cache: the folder of compiled kernels.
        cache_bytes: its size at the end; 0 while the campaign runs.
        mps: whether the workers shared each GPU by NVIDIA's Multi-Process Service at the end.
        timeline: (seconds, cases, compiled) at intervals of ten seconds, or longer equal ones.
    """

    seconds: float
    workers: int
    compilers: int = 0
    cases: int = 0
    unasked: int = 0
    compiled: int = 0
    compiled_by_workers: int = 0
    traced: int = 0
    per_thousand_cases: float = 0.0
    later_per_thousand_cases: float | None = None
    shares: dict[str, float] = {}
    kinds: int = 0
    put_off: int = 0
    dropped: int = 0
    waiting: int = 0
    cache: str = ""
    cache_bytes: int = 0
    mps: bool = False
    timeline: tuple[tuple[float, int, int], ...] = ()


def write_stats(folder: Path, stats: Stats) -> None:
    """Write stats.json.

    Raises:
        StoreError: the disk refuses.
    """
    data = msgspec.json.format(msgspec.json.encode(stats), indent=2) + b"\n"
    write_atomic(folder / _STATS, data, durable=False)


def read_stats(folder: Path) -> Stats | None:
    """The stats of a run; None where there are none, or where they are damaged: no verdict depends on them."""
    try:
        return msgspec.json.decode(read_capped(folder / _STATS), type=Stats)
    except (StoreError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _compiled(stats: Stats) -> str:
    """What was compiled, in words."""
    kernels, functions = plural(stats.compiled - stats.traced, "kernel"), plural(stats.traced, "function")
    if not stats.traced:
        return kernels
    return functions if stats.traced == stats.compiled else f"{kernels} and {functions}"


def stats_sentence(stats: Stats) -> str:
    """The counts in words, for a report."""
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in stats.shares.items())
    later = stats.later_per_thousand_cases
    text = (
        f"{_compiled(stats)} compiled, {stats.per_thousand_cases:.0f} per thousand cases"
        + (f" ({later:.0f} after the first {LATER / 60:.0f} minutes)" if later is not None else "")
        + f", {plural(stats.compiled_by_workers, 'time')} while a worker waited. Time of the workers: {shares}."
    )
    if stats.unasked:
        text += f" {plural(stats.unasked, 'case')} judged without a check whose kernel was not compiled."
    if stats.mps:
        text += " They shared each GPU by MPS."
    if stats.waiting:
        text += f" {plural(stats.waiting, 'case')} of the corpus and of the search were not judged, for want of a compiled kernel."
    if stats.cache_bytes:
        text += f" Compiled kernels are kept in {stats.cache} ({stats.cache_bytes / 2**20:.0f} MiB)."
    return text
