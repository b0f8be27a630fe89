"""Five planted races on a GPU: after how many seconds each is seen by plain repeats, and by repeats beside other work.

    python benchmarks/gpu_races.py [--seconds 60] [--calibrate 2000] [--race NAME ...] [--json FILE]

For each race of `racy_kernels` the gap between its two programs is widened until so many plain runs are all right. Then plain repeats
and repeats beside other work (`flashverify.checks.passes.timing`), as the check `determinism` makes them, run until the first wrong
answer or for the given time each, and the same kernel without the race runs beside other work for a quarter of it. A control that
differs ends the run with exit status 1, and so does a race that other work does not show.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from racy_kernels import RACES, chain

from flashverify.checks.passes.timing import Disturbance

if TYPE_CHECKING:
    from collections.abc import Callable

    from racy_kernels import Race

LEAD = 100
GAPS = (1, 3, 6, 12, 25, 50, 100, 200, 400)
"""Steps of other work by which the second program is behind, tried in this order; without other work a step takes less than a microsecond."""
BATCH = 25
"""Runs between two looks at the answers."""


def wrong_runs(race: Race, chained: torch.Tensor, gap: int, *, safe: bool, stir: Callable[[], None] | None) -> int:
    """How many of `BATCH` runs gave another answer than the expected one."""
    expected = race.expected.to(chained.device)
    wrong = torch.zeros((), dtype=torch.int64, device=chained.device)
    for number in range(BATCH):
        if stir is not None and number % 5 == 0:
            stir()
        wrong += (race.run(chained, LEAD, LEAD + gap, safe) != expected).any()
    return int(wrong)


def calibrated(race: Race, chained: torch.Tensor, runs: int) -> tuple[int, int]:
    """The smallest gap at which so many plain runs are right, or the largest gap; and how many of the runs there were wrong."""
    wrong = 0
    for gap in GAPS:
        wrong = sum(wrong_runs(race, chained, gap, safe=False, stir=None) for _ in range(-(-runs // BATCH)))
        if not wrong:
            return gap, 0
    return GAPS[-1], wrong


def until_wrong(
    race: Race, chained: torch.Tensor, gap: int, seconds: float, *, safe: bool, stir: Callable[[], None] | None
) -> dict[str, Any]:
    """Runs until a wrong answer or the end of the time: runs, seconds, and whether one was wrong."""
    begun, runs, wrong = time.monotonic(), 0, 0
    while not wrong and time.monotonic() - begun < seconds:
        wrong = wrong_runs(race, chained, gap, safe=safe, stir=stir)
        runs += BATCH
    return {"found": bool(wrong), "runs": runs, "seconds": round(time.monotonic() - begun, 2)}


def measured(race: Race, seconds: float, runs: int) -> dict[str, Any]:
    """The record of one race."""
    chained = chain("cuda")
    for safe in (False, True):
        race.run(chained, LEAD, LEAD + GAPS[-1], safe)  # compiles
    gap, wrong = calibrated(race, chained, runs)
    disturbance = Disturbance("cuda", seed=1)
    plain = until_wrong(race, chained, gap, seconds, safe=False, stir=None)
    beside = until_wrong(race, chained, gap, seconds, safe=False, stir=disturbance.stir)
    control = until_wrong(race, chained, gap, seconds / 4, safe=True, stir=disturbance.stir)
    return {
        "race": race.name,
        "gap": gap,
        "wrong_at_the_gap": wrong,
        "plain": plain,
        "beside": beside,
        "control": control,
    }


def main() -> int:
    """0 where every race is seen beside other work and no control differs."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        usage="python benchmarks/gpu_races.py [options]",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    names = [race.name for race in RACES]
    parser.add_argument("--seconds", type=float, default=60.0, help="for each race and kind of repeats")
    parser.add_argument("--calibrate", type=int, default=2000, help="plain runs that must be right")
    parser.add_argument("--race", nargs="*", default=names, choices=names)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print(
            "gpu_races: no GPU; the interpreter's answer is in tests/benchmarks/test_racy_kernels.py", file=sys.stderr
        )
        return 3
    found = []
    print(f"{torch.cuda.get_device_name()}: seconds until the first wrong answer, and runs")
    for race in RACES:
        if race.name in given.race:
            record = measured(race, given.seconds, given.calibrate)
            found.append(record)
            parts = [
                f"{kind} {'found' if record[kind]['found'] else 'not found'} in {record[kind]['seconds']} s, {record[kind]['runs']} runs"
                for kind in ("plain", "beside", "control")
            ]
            print(f"{race.name} (gap {record['gap']}): {'; '.join(parts)}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "races": found}, indent=1) + "\n")
    return int(any(record["control"]["found"] or not record["beside"]["found"] for record in found))


if __name__ == "__main__":
    sys.exit(main())
