"""From which length on is a defect invisible? Planted defects over key lengths and dtypes, and the checks that see them.

    python benchmarks/sight.py judge FILE [--device interpreter|cuda] [--lengths 64,...] [--dtypes fp16,bf16,fp32] [--only NAME]...
                                     [--jobs 1] [--minutes M]
    python benchmarks/sight.py page [--write]

`judge` appends to FILE a line of JSON for each defect, length and dtype, with the checks that fail; what FILE holds is not judged again, so
that the same command goes on where it ended. Short lengths come first. Exit code 1: a check blames the kernels without a defect.
In the interpreter the lengths end at 8,192, on a GPU at 65,536.

The length is that of the sum in which the defect is: rows for a sum of dK or dV, keys for every other. A case has three more than the
length says, a causal mask and a backward; on the other side 384 rows or keys in two heads below 1,024, 96 in two heads up to 8,192,
128 in one head beyond. Its values are those of eight regimes with D = 64, one after the other, of two with D = 16, and of few keys; a defect is
seen that one of them shows, and the others are then left out. Asked are `accuracy`, `nonfinite`, `statistics` and `counting`.

`page` prints docs/sight.md with the tables of the records `reports/cpu/sight/sight.jsonl` and `reports/h200/sight/sight.jsonl`; `--write`
writes it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from sight_page import LINES, Sight, page, read

if TYPE_CHECKING:
    from flashverify.mutants.mutant import Mutant

LENGTHS = {"interpreter": tuple(2**n for n in range(6, 14)), "cuda": tuple(2**n for n in range(6, 17))}
DTYPES = ("fp16", "bf16", "fp32")
REGIMES = ("normal", "negative", "v-positive", "ascending", "weight-ties", "near-ties-1e4", "outlier", "logits-1e2")
NARROW = ("near-ties-1e4", "ascending")
VALUES = (
    *((regime, 64, 0) for regime in REGIMES),
    *((regime, 16, 0) for regime in NARROW),
    *(("few-keys", 64, seed) for seed in (0, 1)),
)
"""Regimes, head dims and seeds, in turn: a matrix unit that truncates loses less of a short dot product, and nothing of an exact one."""
CHECKS = ("accuracy", "nonfinite", "statistics", "counting")
ROUNDED = """
weights_truncated weights_of_dv_truncated ds_truncated accumulator_in_the_input_dtype dq_accumulated_in_the_input_dtype
dk_accumulated_in_the_input_dtype dv_accumulated_in_the_input_dtype logits_in_the_input_dtype lse_in_the_input_dtype
""".split()  # noqa: SIM905
"""What rounds to the input dtype, and so is none in fp32."""
OTHERS = """
row_sum_in_bf16 row_sum_of_rounded_weights log2_of_e_in_five_digits alpha_not_applied last_tile_not_rescaled causal_off_by_one delta_missing dk_without_scale
lse_in_the_wrong_base running_max_starts_at_zero
""".split()  # noqa: SIM905
OF_ROWS = frozenset(
    ("weights_of_dv_truncated", "dk_accumulated_in_the_input_dtype", "dv_accumulated_in_the_input_dtype")
)
"""Defects of a sum over rows."""
_LONG = 16384
"""Keys from which on a case on a GPU takes longer than its compilation."""
CLEAN = "none"
DEFECTS = (CLEAN, *ROUNDED, *OTHERS)


def mutants() -> dict[str, Mutant]:
    """The defects by name: those of the bank, and two more."""
    from flashverify.mutants.bank import CURATED
    from flashverify.mutants.mutant import Mutant

    more = (
        Mutant(
            name="dk_accumulated_in_the_input_dtype",
            file="device/dkdv.py",
            before="dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)",
            after="dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION).to(q.dtype).to(tl.float32)",
            outputs=("dk",),
            modelled_on="a dK that query blocks add to in 16 bits",
        ),
        Mutant(
            name="last_tile_not_rescaled",
            file="device/forward.py",
            before="acc * alpha[:, None], input_precision",
            after="acc * tl.where(t + BLOCK_N >= stop, 1.0, alpha)[:, None], input_precision",
            outputs=("o",),
            modelled_on="the last step of a loop written by itself, without the rescale of the accumulator",
        ),
    )
    return {m.name: m for m in (*CURATED, *more)}


def shape(length: int, dim: int, *, of_rows: bool) -> str:
    """Sizes and mask of a case whose sums over rows, or else over keys, have `length` terms and three more."""
    heads, other = (2, 384) if length < 1024 else (2, 96) if length <= 8192 else (1, 128)
    rows, keys = (length + 3, other) if of_rows else (other, length + 3)
    causal = "bottom-right" if keys >= rows else "top-left"
    return f"heads_q={heads} heads_kv={heads} seq_q={rows} seq_k={keys} dim_qk={dim} dim_v={dim} causal={causal}"


def look(defect: str, todo: list[tuple[int, str]], until: float) -> list[Sight]:
    """Judge one defect at every length and dtype that is asked for, in a process of its own, until the time has come."""
    from flashverify import corrected_interpreter, parse_case
    from flashverify.checks import Plan, judge_case
    from flashverify.mutants import build_mutant
    from flashverify.subjects import load_subject

    found = []
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    with tempfile.TemporaryDirectory() as folder, corrected_interpreter() if interpreted else nullcontext():
        subject = load_subject("bundled" if defect == CLEAN else build_mutant(mutants()[defect], Path(folder)))
        for length, dtype in todo:
            seen: tuple[str, ...] = ()
            for regime, dim, seed in VALUES:
                if time.time() > until:
                    return found
                sizes = shape(length, dim, of_rows=defect in OF_ROWS)
                case = parse_case(f"fv1 {sizes} dtype={dtype} regime={regime} seed={seed}")
                failures = judge_case(subject, case, Plan(checks=CHECKS)).failures
                seen = tuple(dict.fromkeys(f"{v.check} {v.output}" for v in failures))
                if seen:
                    break
            found.append(Sight(defect, length, dtype, seen, regime if seen else ""))
    return found


def judge(options: argparse.Namespace) -> int:
    """Append what is missing to the file."""
    if options.device == "interpreter":
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    seen = read(options.file)
    known = {(s.defect, s.length, s.dtype) for s in seen}
    lengths = sorted(map(int, options.lengths.split(","))) if options.lengths else LENGTHS[options.device]
    until = time.time() + 60 * options.minutes
    jobs = []
    # A process keeps what it has compiled, which pays for short lengths on a GPU; elsewhere short jobs keep all processes busy.
    together = [length for length in lengths if options.device == "cuda" and length < _LONG]
    parts = [together, *([length] for length in lengths if length not in together)]
    for part in parts:
        for defect in options.only or DEFECTS:
            for dtype in options.dtypes.split(","):
                places = [(n, dtype) for n in part if (defect, n, dtype) not in known]
                if places and not (dtype == "fp32" and defect in ROUNDED):
                    jobs.append((defect, places, until))
    options.file.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as processes, options.file.open("ab") as out:
        for done in as_completed([processes.submit(look, *job) for job in jobs]):
            for sight in done.result():
                out.write(LINES.encode(sight) + b"\n")
                seen.append(sight)
            out.flush()
    missing = sum(len(places) for _, places, _ in jobs) + len(known) - len(seen)
    print(f"{len(seen)} places judged, {missing} left; the same command goes on" if missing else f"{len(seen)} judged")
    for sight in seen:
        if sight.defect == CLEAN and sight.seen:
            print(f"blamed without a defect: {sight}")
    return int(any(s.seen for s in seen if s.defect == CLEAN))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("file", type=Path, help="of the lines; it is appended to")
    judging.add_argument("--device", choices=tuple(LENGTHS), default="interpreter")
    judging.add_argument("--lengths", default="")
    judging.add_argument("--dtypes", default=",".join(DTYPES))
    judging.add_argument("--only", action="append", default=[], metavar="NAME", choices=DEFECTS)
    judging.add_argument("--jobs", type=int, default=1, help="processes")
    judging.add_argument("--minutes", type=float, default=1e6, help="after which no case is begun")
    writing = commands.add_parser("page")
    writing.add_argument("--write", action="store_true", help="write docs/sight.md")
    options = parser.parse_args()
    return judge(options) if options.command == "judge" else page(DEFECTS, DTYPES, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
