"""What a case of 65,536 rows and keys costs where the oracle judges it by sample: seconds of each step, and the peak of the memory.

    python benchmarks/gpu_long.py [--json FILE] [--lengths 8192,16384,32768,65536] [--subject NAME]... [--dim 128] [--dtype fp16]

Each case is causal, with a backward, one head. Exit code 1: a case fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, judge_case
from flashverify.checks.passes.execution import execute
from flashverify.checks.sampled.judging import check_sampled
from flashverify.subjects import Subject, load_subject

SUBJECTS = ("bundled", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient")


def measured(subject: Subject, text: str) -> dict[str, Any]:
    """Seconds and peak memory of one case, its verdict, and what was judged."""
    case, device = parse_case(text), subject.device()
    problem, _arena = materialize(case, device)
    execution = execute(subject, problem)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    sampled = check_sampled(subject, execution)
    if device == "cuda":
        torch.cuda.synchronize()
    oracle = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    result = judge_case(subject, case, Plan.fuzz(case))
    return {
        "subject": subject.name,
        "case": text,
        "judged": str(sampled.sampled or "every row and key"),
        "oracle_seconds": round(oracle, 2),
        "oracle_peak_gib": round(peak, 2),
        "all_seconds": round(result.seconds, 2),
        "verdicts": {verdict.check: verdict.status.value for verdict in result.verdicts},
        "failures": [verdict.message for verdict in result.failures],
        "worst": {f"{s.output} {s.mode}": float.fromhex(s.worst) for s in result.stats},
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--lengths", default="8192,16384,32768,65536")
    parser.add_argument("--subject", action="append", help=f"repeatable; by default {', '.join(SUBJECTS)}")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--dtype", default="fp16")
    options = parser.parse_args()
    records = []
    for name in options.subject or SUBJECTS:
        subject = load_subject(name)
        for length in map(int, options.lengths.split(",")):
            sizes = f"seq_q={length} seq_k={length} dim_qk={options.dim} dim_v={options.dim}"
            found = measured(subject, f"fv1 {sizes} dtype={options.dtype} causal=top-left seed=1")
            records.append(found)
            print(json.dumps(found), flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    return int(any(record["failures"] for record in records))


if __name__ == "__main__":
    sys.exit(main())
