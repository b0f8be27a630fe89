"""How far verdicts and ratios of interpreted kernels depend on the processor's arithmetic libraries.

    python benchmarks/blas_spread.py [--cases 200] [--subject bundled] [--settings WORD ...] [--save FILE] [--against FILE]

The committed list of benchmark cases is judged in one process a setting; the table compares each with this machine's own
setting, or with a file that an earlier run, another machine or another version saved. A setting is a few variables of the
environment: the kernel that OpenBLAS chooses for NumPy's products, the vectors that NumPy and torch use, MKL's code path, the
number of threads. docs/interpreter.md states what is promised.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

OWN = "this machine's own"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SETTINGS: dict[str, dict[str, str]] = {
    OWN: {},
    **{
        f"OPENBLAS_CORETYPE={core}": {"OPENBLAS_CORETYPE": core}
        for core in ("Haswell", "SkylakeX", "Sandybridge", "Zen")
    },
    **{f"ATEN_CPU_CAPABILITY={name}": {"ATEN_CPU_CAPABILITY": name} for name in ("default", "avx2")},
    "NumPy without AVX-512": {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    "MKL_CBWR=COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    **{f"{n} threads": dict.fromkeys(THREADS, str(n)) for n in (2, 8)},
}


def judge(subject: str, cases: int) -> None:
    """Print, as JSON, the statuses and the worst ratios of each case."""
    from flashverify.campaign.toolkit import bundled
    from flashverify.case import benchmark_cases

    answers = {}
    with bundled.open("cpu", plain=False):
        loaded = bundled.load(subject)
        for case in islice(benchmark_cases(), cases):
            result = bundled.judge(loaded, case, "fuzz")
            answers[str(case)] = {
                "verdicts": [[v.check, v.status.value, v.output, v.error, v.mode] for v in result.verdicts],
                "ratios": {f"{s.output} {s.mode}": [s.worst, s.median, s.p99] for s in result.stats},
            }
    json.dump(answers, sys.stdout)


def answers_under(variables: dict[str, str], options: argparse.Namespace) -> dict[str, Any] | str:
    """The answers of one process under `variables`, or its last line where it fails."""
    here = {"TRITON_INTERPRET": "1", **dict.fromkeys(THREADS, "1")}
    command = [sys.executable, __file__, "--judge", "--subject", options.subject, "--cases", str(options.cases)]
    done = subprocess.run(command, env=os.environ | here | variables, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare(base: dict[str, Any], other: dict[str, Any]) -> str:
    """One line: statuses that differ, ratios that are equal bit for bit, and the largest difference by mode."""
    common = [case for case in base if case in other]
    changed = [case for case in common if base[case]["verdicts"] != other[case]["verdicts"]]
    equal = total = 0
    largest: dict[str, float] = {}
    for case in common:
        for name, ratios in base[case]["ratios"].items():
            for one, two in zip(ratios, other[case]["ratios"].get(name, []), strict=True):
                total += 1
                equal += one == two
                difference = abs(float.fromhex(one) - float.fromhex(two)) if one != two else 0.0
                mode = name.split(" ", 1)[1]
                largest[mode] = max(largest.get(mode, 0.0), difference)
    spread = ", ".join(f"{mode} {value:.2g}" for mode, value in sorted(largest.items()))
    lines = [
        f"{len(common)} cases, {len(changed)} verdicts differ, {equal}/{total} ratios equal; largest difference: {spread}"
    ]
    return "\n    differs: ".join(lines + changed)


def main() -> int:
    """Judge under each setting and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200, help="from the head of the list [default: 200]")
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--settings", nargs="*", metavar="WORD", help="only settings whose name holds a word")
    parser.add_argument("--save", type=Path, help="write the answers under this machine's own setting to FILE")
    parser.add_argument("--against", type=Path, help="compare with the answers saved in FILE")
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        judge(options.subject, options.cases)
        return 0
    base = json.loads(options.against.read_text(encoding="utf-8")) if options.against else None
    failed = False
    for name, variables in SETTINGS.items():
        wanted = options.settings is None or any(word in name for word in options.settings)
        if not wanted and (name != OWN or base is not None):
            continue
        found = answers_under(variables, options)
        if isinstance(found, str):
            failed = True
            print(f"{name}: no answer: {found}", flush=True)
            continue
        if name == OWN and options.save:
            options.save.write_text(json.dumps(found), encoding="utf-8")
        if base is None:
            base = found
        print(f"{name}: {compare(base, found)}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
