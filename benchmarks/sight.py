"""From which length on is a defect invisible? Planted defects over key lengths and dtypes, and the checks that see them.

    TRITON_INTERPRET=1 python benchmarks/sight.py FILE [--lengths 64,...,8192] [--dtypes fp16,bf16,fp32] [--only NAME]... [--jobs 1]
    python benchmarks/sight.py FILE --table

A line of FILE, JSON, is one defect at one length and dtype, with the checks that fail; what FILE holds already is not judged again. The
cases have two heads, 96 rows, three keys more than the length says, D = 64, a causal mask and a backward; values are normal, positive in V,
and of logits near -256. The checks asked are `accuracy`, `nonfinite`, `statistics` and `counting`; a defect is seen that one case shows. The table names the checks that see a defect at every length, and the first length
at which none does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")

import msgspec

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
DTYPES = ("fp16", "bf16", "fp32")
REGIMES = ("normal", "v-positive", "negative")
CHECKS = ("accuracy", "nonfinite", "statistics", "counting")
DEFECTS = """
weights_truncated weights_of_dv_truncated ds_truncated accumulator_in_the_input_dtype dq_accumulated_in_the_input_dtype
dv_accumulated_in_the_input_dtype row_sum_in_bf16 row_sum_of_rounded_weights logits_in_the_input_dtype lse_in_the_input_dtype
log2_of_e_in_five_digits alpha_not_applied causal_off_by_one delta_missing dk_without_scale
lse_in_the_wrong_base running_max_starts_at_zero
""".split()  # noqa: SIM905
CLEAN = "none"


class Sight(msgspec.Struct):
    """What the checks said of one defect at one length."""

    defect: str
    length: int
    dtype: str
    seen: tuple[str, ...]


def look(defect: str, todo: list[tuple[int, str]]) -> list[Sight]:
    """Judge one defect on every length and dtype that is asked for, in a process of its own."""
    from flashverify import corrected_interpreter, parse_case
    from flashverify.checks import Plan, judge_case
    from flashverify.mutants import build_mutant
    from flashverify.mutants.bank import CURATED
    from flashverify.subjects import load_subject

    found = []
    with tempfile.TemporaryDirectory() as folder, corrected_interpreter():
        spec = "bundled" if defect == CLEAN else build_mutant({m.name: m for m in CURATED}[defect], Path(folder))
        subject = load_subject(spec)
        for length, dtype in todo:
            shape = f"heads_q=2 heads_kv=2 seq_q=96 seq_k={length + 3} dim_qk=64 dim_v=64"
            cases = [parse_case(f"fv1 {shape} dtype={dtype} causal=bottom-right regime={regime}") for regime in REGIMES]
            failures = [v for case in cases for v in judge_case(subject, case, Plan(checks=CHECKS)).failures]
            found.append(Sight(defect, length, dtype, tuple(dict.fromkeys(f"{v.check} {v.output}" for v in failures))))
    return found


def table(seen: list[Sight]) -> str:
    """A row a defect and dtype: the checks that see it, and from which length on none does."""
    lengths = sorted({s.length for s in seen})
    lines = [
        f"| defect | dtype | {' | '.join(map(str, lengths))} |",
        f"|---|---|{'---|' * len(lengths)}",
    ]
    by_place = {(s.defect, s.dtype, s.length): s for s in seen}
    for defect in dict.fromkeys(
        s.defect for s in sorted(seen, key=lambda s: ([CLEAN, *DEFECTS].index(s.defect), s.dtype))
    ):
        for dtype in DTYPES:
            cells = [by_place.get((defect, dtype, length)) for length in lengths]
            if any(cells):
                lines.append(f"| {defect} | {dtype} | {' | '.join('' if s is None else checks(s) for s in cells)} |")
    return "\n".join(lines)


def checks(sight: Sight) -> str:
    """The names of the checks that see a defect."""
    return ", ".join(dict.fromkeys(each.split()[0] for each in sight.seen)) or "–"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="of the lines; it is appended to")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="defects at a time")
    parser.add_argument("--table", action="store_true", help="print the table of FILE and judge nothing")
    options = parser.parse_args()
    lines = options.file.read_bytes().splitlines() if options.file.exists() else []
    seen = [msgspec.json.decode(line, type=Sight) for line in lines]
    if not options.table:
        known = {(s.defect, s.length, s.dtype) for s in seen}
        todo = []
        for length in sorted(map(int, options.lengths.split(",")), reverse=True):
            for defect in options.only or (CLEAN, *DEFECTS):
                places = [
                    (length, dtype) for dtype in options.dtypes.split(",") if (defect, length, dtype) not in known
                ]
                todo += [(defect, places)] if places else []
        with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as processes, options.file.open("ab") as out:
            for done in as_completed([processes.submit(look, *job) for job in todo]):
                for sight in done.result():
                    out.write(msgspec.json.encode(sight) + b"\n")
                    seen.append(sight)
                out.flush()
    print(table(seen))
    return int(any(s.seen for s in seen if s.defect == CLEAN))


if __name__ == "__main__":
    sys.exit(main())
