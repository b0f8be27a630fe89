"""Attacks every bound: hill climbing over values, error directions and random forms, with an emulated kernel that follows the form it declares.

    python benchmarks/climb.py [--evaluations 20000] [--steps 12] [--seed 0] [--jobs 1] [--record FILE]
    python benchmarks/climb.py --number N [--steps 12]

A climb draws a form, a dtype, shapes, values, a mask and what modifies the logits, and aims at one output; it changes values and the signs of
errors, and keeps what comes closer to the bound. The same command with `--record` goes on where it was ended. Prints the worst ratio of each output (`|`: given the kernel's own O and LSE, `!`: the
strict tier) and of each declared value, and writes a line of JSON a climb. Exit code 1 where a ratio exceeds 1: a bound or the emulated
kernel is wrong. `--number` repeats one climb.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from resumed import pieces

os.environ.setdefault("OMP_NUM_THREADS", "1")
_ROOT = str(Path(__file__).parents[1])
# Every climb whose number has a remainder below this many, modulo twice as many, fixes a form that is seldom drawn.
_RARE: tuple[dict[str, Any], ...] = (
    {"grad_accum": "bf16", "grad_accum_of": "all"},
    {"grad_accum": "fp16", "grad_accum_of": "dq"},
    {"gqa_partial": "input"},
    {"normalise": "every_block", "n_splits": 1},
    {"dot": "tf32x3", "dtype": "fp32", "architecture": "sm_90"},
    {"scale_ds": "operand", "architecture": "ieee"},
    {"dim": 128},
    {"n_splits": 3, "partial_dtype": "input"},
)


def fixed_of(number: int) -> dict[str, Any]:
    """What the climb of a number does not draw."""
    place = number % (2 * len(_RARE))
    return _RARE[place] if place < len(_RARE) else {}


def climbed(number: int, steps: int) -> dict[str, Any]:
    """The record of one climb."""
    if _ROOT not in sys.path:
        sys.path.insert(0, _ROOT)
    import torch

    from tests.numerics.climbing import climb

    torch.set_num_threads(1)
    found = climb(number, steps, **fixed_of(number))
    return {
        "number": number,
        "evaluations": found.evaluations,
        "dtype": str(found.dtype).removeprefix("torch."),
        "fixed": found.fixed,
        "form": found.form.describe()["declared"],
        "worst": {name: round(ratio, 6) for name, ratio in sorted(found.worst.items())},
    }


def table(title: str, rows: dict[str, tuple[int, float, str, int]]) -> str:
    """Rows of evaluations, worst ratio, the output that has it and the number of its climb."""
    lines = [f"| {title} | evaluations | worst ratio | output | climb |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {n} | {ratio:.3f} | {output} | {number} |"
        for name, (n, ratio, output, number) in sorted(rows.items())
    ]
    return "\n".join(lines)


def summary(records: list[dict[str, Any]]) -> str:
    """The worst ratios by output, and by what is declared."""
    by_output: dict[str, tuple[int, float, str, int]] = {}
    by_value: dict[str, tuple[int, float, str, int]] = defaultdict(lambda: (0, 0.0, "", -1))
    for record in records:
        names = [record["dtype"], *(f"{name}={value}" for name, value in (record["form"] | record["fixed"]).items())]
        for output, ratio in record["worst"].items():
            n, worst, _, number = by_output.get(output, (0, -1.0, "", -1))
            worst, number = max((worst, number), (ratio, record["number"]))
            by_output[output] = (n + record["evaluations"], worst, output, number)
        output, ratio = max(record["worst"].items(), key=lambda item: item[1])
        for name in dict.fromkeys(names):
            n, *best = by_value[name]
            kept = best if best[0] >= ratio else [ratio, output, record["number"]]
            by_value[name] = (n + record["evaluations"], *kept)  # type: ignore[assignment]
    return f"{table('output', by_output)}\n\n{table('declared', by_value)}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=20000, help="kernels to run, at least")
    parser.add_argument("--steps", type=int, default=12, help="kernels of one climb")
    parser.add_argument("--seed", type=int, default=0, help="climbs begin at this many millions")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--number", type=int, help="this climb alone")
    parser.add_argument("--record", type=Path, metavar="FILE", help="a line of JSON a climb")
    options = parser.parse_args()
    if options.number is not None:
        found = climbed(options.number, options.steps)
        print(json.dumps(found, indent=1))
        return int(max(found["worst"].values()) > 1)
    first = options.seed * 1_000_000
    numbers = range(first, first + -(-options.evaluations // options.steps))
    records = pieces(climbed, ((n, options.steps) for n in numbers), jobs=options.jobs, file=options.record)
    if options.record is not None:
        options.record.with_name(f"{options.record.name}.part").unlink(missing_ok=True)
        options.record.write_text("".join(f"{json.dumps(x, separators=(',', ':'))}\n" for x in records), "utf-8")
    over = [x for x in records if not max(x["worst"].values()) <= 1]
    dtypes = Counter(x["dtype"] for x in records)
    print(summary(records))
    print(
        f"\n{sum(x['evaluations'] for x in records)} evaluations in {len(records)} climbs ({dict(dtypes)}), {len(over)} above 1"
    )
    for x in over:
        print(f"above 1: --number {x['number']}: { ({k: v for k, v in x['worst'].items() if not v <= 1}) }")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
