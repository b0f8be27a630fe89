"""After how many steps of `flashverify train` is a dK that is too large by a common fraction seen, by size and dtype, and by what?

    python benchmarks/training_sight.py            # prints the table of docs/training.md
    python benchmarks/training_sight.py --steps 20

The subject is attention in plain torch whose dK is multiplied in fp32, before it is rounded; the model is that of the command on a CPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from flashverify.training.course import Course
from flashverify.training.settings import Settings
from tests.training.planted import planted

SIZES = (1e-2, 3e-3, 1e-3, 5e-4, 2e-4, 1e-4, 3e-5)
DTYPES = ("fp32", "fp16", "bf16")


def seen(size: float, dtype: str, steps: int) -> str:
    """What sees a dK that is `size` too large first, and after how many steps; a dash where nothing does."""
    course = Course(planted(dk=1 + size), Settings(subject="planted", device="cpu", dtype=dtype, unrolled=0))
    for number in range(1, steps + 1):
        course.step()
        if course.findings:
            kinds = sorted({finding.kind for finding in course.findings.values()})
            return f"{number} ({', '.join(kinds)})"
    return "–"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="after which a defect counts as unseen")
    steps = parser.parse_args().steps
    print(f"| dK too large by | {' | '.join(DTYPES)} |\n|---|{'---|' * len(DTYPES)}", flush=True)
    for size in SIZES:
        print(f"| {size:g} | {' | '.join(seen(size, dtype, steps) for dtype in DTYPES)} |", flush=True)


if __name__ == "__main__":
    main()
