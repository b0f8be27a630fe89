"""Time of the bundled kernels, forward and backward, in Triton's interpreter.

    TRITON_INTERPRET=1 python benchmarks/interpreter_speed.py [--json] [--rounds N]

It runs as it comes, in a session, in lockstep, and in lockstep under the memory sanitizer.
The ways are interleaved in one run and the fastest round counts, in processor time, the second run of a session: what a
session records and replays has been recorded by the first. Outputs in fp16 and fp32 are asserted to be equal
bit for bit; bf16, which the stock interpreter computes wrongly, is asserted equal in a session and in lockstep.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
import triton
from rich.console import Console
from rich.table import Table

from flashverify.formats import FORMATS
from flashverify.interpreter import Sanitizer, session
from flashverify_kernels import Configs, LaunchConfig, Options, TreeMask
from flashverify_kernels.launch import backward, forward

LENGTH, CHANNELS, HEADS = 48, 32, 2
WAYS: dict[str, Any] = {
    "stock": contextlib.nullcontext,
    "session": lambda: session(lockstep=False),
    "lockstep": session,
    "sanitized": lambda: session(Sanitizer),
}


def workload(mask: str, dtype: torch.dtype, block: int) -> Any:
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (torch.randn(1, HEADS, LENGTH, CHANNELS, generator=generator).to(dtype) for _ in range(4))
    parents = [-1, *((n - 1) // 2 for n in range(1, LENGTH))]
    config = LaunchConfig(block_m=block, block_n=block)
    options = Options(
        causal="top-left" if mask == "causal" else None,
        tree=TreeMask.from_parents(parents) if mask == "tree" else None,
        config=Configs(forward=config, dq=config, dkdv=config),
        allow_interpreted_bf16=True,
    )

    def run() -> list[torch.Tensor]:
        result = forward(q, k, v, options)
        gradients = backward(do, q, k, v, result.o, result.lse2, options)
        outputs = (result.o, result.lse2, gradients.dq, gradients.dk, gradients.dv, gradients.delta)
        return [x for x in outputs if x is not None]

    return run


def bits(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x.view(torch.int16 if x.itemsize == 2 else torch.int32) for x in outputs]


def measure(run: Any, ways: list[str], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(ways, float("inf"))
    reference = None
    for n in range(rounds + 1):
        for way in ways:
            with WAYS[way]() as opened:
                run()
                begun = time.process_time()
                outputs = bits(run())
                spent = 1e3 * (time.process_time() - begun)
                assert opened is None or not opened.fallbacks, opened.fallbacks
            reference = reference or outputs
            assert all(torch.equal(a, b) for a, b in zip(reference, outputs, strict=True)), way
            if n:
                best[way] = min(best[way], spent)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    rows = []
    dtypes = {name: FORMATS[name].dtype for name in ("fp16", "fp32", "bf16")}
    for mask, block, dtype in itertools.product(("none", "causal", "tree"), (16, 32, 64), dtypes):
        if dtype != "fp16" and (mask, block) != ("none", 16):
            continue  # the time hardly depends on the dtype
        ways = [way for way in WAYS if dtype != "bf16" or way != "stock"]
        best = measure(workload(mask, dtypes[dtype], block), ways, arguments.rounds)
        rows.append(
            {"mask": mask, "block": block, "dtype": dtype, **{f"{way}_ms": round(best[way], 2) for way in ways}}
        )

    if arguments.json:
        print(json.dumps({"triton": triton.__version__, "torch": torch.__version__, "rows": rows}, indent=1))
        return
    table = Table(
        title=f"ms per forward and backward, {LENGTH}x{LENGTH}x{CHANNELS}, {HEADS} heads, triton {triton.__version__}"
    )
    for name in ("mask", "block", "dtype", *WAYS, "session x", "lockstep x", "sanitizer"):
        table.add_column(name, justify="right")
    for row in rows:
        stock = row.get("stock_ms")
        times = [f"{row[f'{way}_ms']:.1f}" if f"{way}_ms" in row else "-" for way in WAYS]
        gains = [f"{stock / row[f'{way}_ms']:.1f}" if stock else "-" for way in ("session", "lockstep")]
        cost = f"{100 * (row['sanitized_ms'] / row['lockstep_ms'] - 1):+.0f} %"
        table.add_row(str(row["mask"]), str(row["block"]), str(row["dtype"]), *times, *gains, cost)
    Console().print(table)


if __name__ == "__main__":
    main()
