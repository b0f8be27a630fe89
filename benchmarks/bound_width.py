"""How wide the bounds are: bound / spacing of the output's dtype at the exact value, over drawn cases and drawn forms.

    python benchmarks/bound_width.py record [--cases 1000] [--seed 0] [--jobs 1] [--part K/N] [--cases-of RECORD] FILE
    python benchmarks/bound_width.py show FILE
    python benchmarks/bound_width.py compare BEFORE AFTER

`record` draws cases as `flashverify fuzz` does, gives each a form by its number, runs no kernel, and writes a line of JSON a case: for each
output the number of elements, how many are exempt and uninformative, and a histogram of log2(width) in eighths. The same command goes on
where it was ended. Two records of one seed and version hold the same cases, and `--cases-of` takes those of a record, such as one that an
older version made: `PYTHONPATH=OLD:OLD/kernels:OLD/oracles python benchmarks/bound_width.py record BEFORE` measures the checkout OLD.
`compare` sets the percentiles of both side by side, and those of before / after, case by case. A file whose name ends in .gz is compressed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from resumed import pieces

os.environ.setdefault("TRITON_INTERPRET", "1")

# One that takes every part of the case space, and one that takes bf16 on a CPU.
SUBJECTS = ("bundled", "torch-cpu")
SHARES = (0.5, 0.9, 0.99)
_BIN = 8
_CHOICES: dict[str, tuple[Any, ...]] = {
    "exp": ("ex2", "ex2", "exp", "poly"),
    "gap_c": (1.0, 3.0),
    "kappa": (2.0, 4.0),
    "prescale_fwd": ("none", "none", "q", "k"),
    "scale_ds": ("after", "after", "operand", "before"),
    "row_sum": ("unrounded", "unrounded", "rounded"),
    "lse_base": ("e", "2"),
    "normalise": ("end", "end", "end", "every_block", "lse"),
    "delta_from": ("o", "o", "o_fp32", "p"),
    "dp_init": ("zero", "zero", "minus_delta"),
    "grad_accum": ("fp32", "fp32", "fp16", "bf16"),
    "grad_accum_of": ("dq", "dkv", "all"),
    "gqa_partial": ("fp32", "fp32", "input"),
    "o_accum": ("fp32", "fp32", "fp32", "bf16"),
    "n_splits": (1, 1, 1, 3),
    "max_source": ("exponent", "exponent", "apart"),
    "dot": ("ieee", "tf32", "tf32x3"),
    "architecture": ("ieee", "sm_80", "sm_90", "agnostic"),
    "block_n": (16, 64, 128),
    "key_order": ("unknown", "ascending"),
    "softcap_slope": ("square", "product"),
    "masked_ds": (False, True),
}


def drawn_form(number: int) -> Any:
    """The form of the case of a number; the same in every process."""
    from flashverify.numerics import Form

    source = random.Random(number)
    return Form(p_from="lse", **{name: source.choice(values) for name, values in _CHOICES.items()})


def widths(value: Any, found: Any, out: Any) -> dict[str, Any]:
    """Counts and the histogram of one output."""
    import torch

    kept = torch.isfinite(found.bound) & (found.bound > 0)
    spacing = torch.ldexp(
        torch.full_like(found.bound, 2 * out.u), torch.frexp(value.double().abs().clamp(min=out.min_normal))[1] - 1
    )
    width = (found.bound[kept] / spacing[kept]).log2().mul(_BIN).round().to(torch.int64)
    return {
        "elements": found.bound.numel(),
        "exempt": int(found.exempt.sum()),
        "uninformative": int(found.uninformative.sum()),
        "widths": {str(k): n for k, n in sorted(Counter(width.flatten().tolist()).items())},
    }


def measured(number: int, text: str) -> dict[str, Any] | None:
    """The line of one case; None of one without elements."""
    import torch

    torch.set_num_threads(1)
    from flashverify.case.memory.materialize import materialize
    from flashverify.case.text import parse_case
    from flashverify.formats import FORMATS
    from flashverify.truth import Truth, inputs_of

    case, form = parse_case(text), drawn_form(number)
    if 0 in (case.batch, case.heads_q, case.seq_q, case.seq_k):
        return None
    inputs, _ = inputs_of(materialize(case, "cpu")[0])
    truth = Truth(inputs, case.dtype, form)
    found = truth.forward() | (truth.backward() if inputs.do is not None else {})
    own = {"o": form.out_dtype or case.dtype, "lse": "fp32", "delta": "fp32", "dsink": "fp32"}
    outputs = {name: widths(*x, FORMATS[own.get(name, case.dtype)]) for name, x in found.items()}
    return {
        "number": number,
        "case": text,
        "form": form.describe()["declared"],
        "dtype": case.dtype,
        "outputs": outputs,
    }


def record(options: argparse.Namespace) -> int:
    """Measures the cases and writes their lines in order."""
    part, parts = map(int, options.part.split("/"))
    wanted = [(number, case) for number, case in numbered(options) if number % parts == part - 1]
    found = pieces(measured, wanted, jobs=options.jobs, file=options.file)
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in found).encode()
    options.file.write_bytes(gzip.compress(text, mtime=0) if options.file.suffix == ".gz" else text)
    options.file.with_name(f"{options.file.name}.part").unlink(missing_ok=True)
    print(f"{len(found)} cases in {options.file}")
    return 0


def numbered(options: argparse.Namespace) -> list[tuple[int, str]]:
    """The cases with their numbers: those of a record, or drawn ones."""
    if options.cases_of is not None:
        return [(line["number"], line["case"]) for line in read(options.cases_of).values()]
    from flashverify.campaign.toolkit import bundled
    from flashverify.campaign.worker.search import draw

    subjects = options.subject or SUBJECTS
    drawn = [
        case
        for name in subjects
        for case in draw(bundled.strategy(bundled.load(name), "cpu"), options.cases // len(subjects), options.seed)
    ]
    return [(number, str(case)) for number, case in enumerate(drawn)]


def read(file: Path) -> dict[str, dict[str, Any]]:
    """The lines of a record by case and form."""
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    lines = (json.loads(line) for line in text.decode().splitlines())
    return {f"{line['case']} {line['form']}": line for line in lines}


def percentiles(counts: Counter[int]) -> list[float]:
    """`SHARES` of a histogram, in octaves."""
    total, found = sum(counts.values()), []
    for share in SHARES:
        seen = 0
        for value, count in sorted(counts.items()):
            seen += count
            if seen >= share * total:
                found.append(value / _BIN)
                break
    return found


def pooled(lines: dict[str, dict[str, Any]]) -> dict[tuple[str, str], tuple[Counter[int], Counter[str]]]:
    """Histogram and counts of each output and dtype over all cases."""
    found: dict[tuple[str, str], tuple[Counter[int], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for line in lines.values():
        for name, output in line["outputs"].items():
            widths_of, counts = found[name, line["dtype"]]
            widths_of.update({int(k): n for k, n in output["widths"].items()})
            counts.update({k: output[k] for k in ("elements", "exempt", "uninformative")})
    return found


def cell(octaves: list[float]) -> str:
    """Percentiles as factors."""
    return " / ".join(f"{2.0**x:.3g}" for x in octaves) or "-"


def mean(output: dict[str, Any]) -> float | None:
    """The mean of log2(width) of one output of one case, in octaves."""
    total = sum(output["widths"].values())
    return sum(int(k) * n for k, n in output["widths"].items()) / (_BIN * total) if total else None


def show(lines: dict[str, dict[str, Any]]) -> None:
    """Prints the percentiles of a record."""
    print(
        "| output | dtype | elements | uninformative, % | width in spacings: median / 90 % / 99 % |\n|---|---|---|---|---|"
    )
    for (name, dtype), (widths_of, counts) in sorted(pooled(lines).items()):
        vague = 100 * counts["uninformative"] / max(counts["elements"], 1)
        print(f"| {name} | {dtype} | {counts['elements']} | {vague:.2f} | {cell(percentiles(widths_of))} |")


def compare(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> int:
    """Prints both records side by side; exit code 1 where they hold other cases, or where a bound is wider in some case."""
    if set(before) != set(after):
        print(f"the records hold other cases: {len(set(before) ^ set(after))} in one of them only", file=sys.stderr)
        return 1
    old, new = pooled(before), pooled(after)
    factors: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    wider = []
    for key, line in before.items():
        for name, output in line["outputs"].items():
            a, b = mean(output), mean(after[key]["outputs"][name])
            if a is not None and b is not None:
                factors[name, line["dtype"]][round((a - b) * _BIN)] += 1
                wider += [f"{name} is 2^{b - a:.2g} times as wide: {key}"] * (b > a + 1 / _BIN)
    print(
        "| output | dtype | before: median / 90 % / 99 % | after | before / after of a case | sharper cases |\n|---|---|---|---|---|---|"
    )
    for key in sorted(old):
        sharper = sum(n for step, n in factors[key].items() if step > 0)
        print(
            f"| {' | '.join(key)} | {cell(percentiles(old[key][0]))} | {cell(percentiles(new[key][0]))} "
            f"| {cell(percentiles(factors[key]))} | {sharper} of {sum(factors[key].values())} |"
        )
    print(*wider[:20], sep="\n", end="\n" * bool(wider))
    return int(bool(wider))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("record")
    made.add_argument("file", type=Path)
    made.add_argument("--cases", type=int, default=1000)
    made.add_argument("--cases-of", type=Path, metavar="RECORD", help="its cases, in place of drawn ones")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--jobs", type=int, default=1, help="processes")
    made.add_argument("--part", default="1/1", metavar="K/N", help="every N-th case, from the K-th on")
    made.add_argument("--subject", action="append", metavar="NAME", help="whose cases are drawn; repeatable")
    commands.add_parser("show").add_argument("file", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "record":
        return record(options)
    if options.command == "show":
        show(read(options.file))
        return 0
    return compare(read(options.before), read(options.after))


if __name__ == "__main__":
    sys.exit(main())
