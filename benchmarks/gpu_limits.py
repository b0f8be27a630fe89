"""The bundled kernels at the limits of a GPU: sizes past 2^31 elements, 65,536 tokens, more heads than a grid axis has.

    python benchmarks/gpu_limits.py [--json FILE] [--longest 65536]

Every element of every output is judged by its bound. For the long sequences the peak of memory beyond inputs and outputs is
given too: it grows with the length, not with its square.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace

import torch

from flashverify.case.case import Case, Grad
from flashverify.case.masks.mask import Mask
from flashverify.case.problem import Problem
from flashverify.checks.accuracy import check_accuracy
from flashverify.checks.passes.execution import execute
from flashverify.judge.verdict import from_hex
from flashverify.subjects import load_subject

GIB = 1 << 30


def problem(case: Case, stride: int | None = None) -> Problem:
    """Normal values on the GPU; with a `stride`, rows lie that many elements apart."""
    generator = torch.Generator("cuda").manual_seed(1)

    def tensor(shape: tuple[int, ...]) -> torch.Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float16, device="cuda")
        if stride is None:
            return values
        batch, heads, rows, channels = shape
        storage = torch.empty(batch * heads * rows * stride, dtype=torch.float16, device="cuda")
        view = storage.as_strided(shape, (heads * rows * stride, rows * stride, stride, 1))
        view.copy_(values)
        assert view.stride(2) * (rows - 1) + channels <= storage.numel()
        return view

    return Problem(
        case=case,
        q=tensor(case.shape_q),
        k=tensor(case.shape_k),
        v=tensor(case.shape_v),
        do=tensor(case.shape_o),
        dlse=None,
        key_lengths=None,
    )


def judged(name: str, case: Case, stride: int | None = None) -> dict[str, object]:
    """Worst ratios of one problem, and the memory that forward and backward needed."""
    subject = load_subject("bundled")
    given = problem(case, stride)
    subject.backward(given, subject.forward(given))  # compiles
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    made = subject.forward(given)
    gradients = subject.backward(given, made)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    outputs = [made.o, made.lse, gradients.dq, gradients.dk, gradients.dv]
    kept = sum(x.numel() * x.element_size() for x in outputs if x is not None)
    del made, gradients, outputs
    started = time.perf_counter()
    found = check_accuracy(subject, execute(subject, given))
    row = {
        "problem": name,
        "case": str(case),
        "largest_offset": max(
            sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) for x in (given.q, given.k, given.v)
        ),
        "beyond_inputs_and_outputs_bytes": peak - kept,
        "failures": [verdict.message for c in found.comparisons for verdict in c.verdicts],
        "worst": {f"{c.stats.output} {c.stats.mode}": round(from_hex(c.stats.worst), 4) for c in found.comparisons},
        "judged_seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps(row), flush=True)
    torch.cuda.empty_cache()
    return row


def main() -> int:
    """Judge every limit; 1 where an element is outside its bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--longest", type=int, default=65536)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_limits: error: no NVIDIA GPU is available", file=sys.stderr)
        return 3
    plain = Case(batch=1, heads_q=1, heads_kv=1, seq_q=4096, seq_k=4096, dim_qk=64, dim_v=64, grad=Grad())
    causal = Mask(causal="top-left")
    rows = [
        judged("rows 2^20 elements apart", plain, 1 << 20),
        judged("rows 2^20 + 1 elements apart, causal", replace(plain, mask=causal), (1 << 20) + 1),
        judged(
            "80,000 heads",
            replace(plain, batch=2, heads_q=40000, heads_kv=40000, seq_q=17, seq_k=17, dim_qk=16, dim_v=16),
        ),
    ]
    length = 8192
    while length <= options.longest:
        for mask in (Mask(), causal):
            rows.append(judged(f"{length} tokens", replace(plain, seq_q=length, seq_k=length, mask=mask)))
        length *= 2
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return int(any(row["failures"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
