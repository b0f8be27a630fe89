"""How far the interpreter's model of a GPU is from a GPU: outputs of the bundled kernels, bit by bit.

    python benchmarks/gpu_equality.py --dump gpu.npz                          on a machine with a GPU
    python benchmarks/gpu_equality.py --dump model.npz --numerics h100        interpreted, anywhere
    python benchmarks/gpu_equality.py --compare gpu.npz model.npz             a Markdown table

Inputs and tiles are the same on every machine. `h100+0ulp` rounds exp2, log2 and divisions to nearest, which is closer to a
GPU than errors up to the documented ones.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from flashverify.subjects import has_gpu

os.environ.setdefault("OMP_NUM_THREADS", "1")
if "--numerics" in sys.argv or not has_gpu():
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton

from flashverify.case.case import Case, Values
from flashverify.case.masks.mask import Mask
from flashverify.case.memory.materialize import materialize
from flashverify.case.text import format_case, parse_case
from flashverify.subjects.bundled import BUNDLED

FORMATS = (("fp16", "ieee"), ("bf16", "ieee"), ("fp32", "ieee"), ("fp32", "tf32"), ("fp32", "tf32x3"))
MASKS = ("none", "causal", "tree")
REGIMES = ("normal", "logits-1e3", "ties", "tiny")
BLOCKS = ((16, 16), (64, 32), (64, 64), (32, 32), (16, 64), (32, 16), (64, 16))
SIZES = ((64, 64, 16, 16), (48, 80, 32, 32), (37, 53, 64, 24), (70, 70, 40, 64))
OUTPUTS = ("o", "lse", "delta", "dq", "dk", "dv")


def cases() -> list[Case]:
    """Every format, mask and regime; sizes and tiles in turn."""
    found = []
    for n, ((dtype, precision), kind, regime) in enumerate(itertools.product(FORMATS, MASKS, REGIMES)):
        seq_q, seq_k, dim_qk, dim_v = SIZES[n % len(SIZES)]
        block_m, block_n = BLOCKS[n % len(BLOCKS)]
        if dtype == "fp32":
            block_m, block_n = min(block_m, 32), min(block_n, 32)
        tree = tuple(i // 2 - (i == 0) for i in range(seq_q))
        mask = {"none": Mask(), "causal": Mask(causal="bottom-right"), "tree": Mask(tree=tree)}[kind]
        found.append(
            Case(
                dtype=dtype,
                precision=precision,
                heads_q=2,
                heads_kv=1 + n % 2,
                seq_q=seq_q,
                seq_k=seq_k,
                dim_qk=dim_qk,
                dim_v=dim_v,
                mask=mask,
                values=Values(regime=regime, seed=n),
                launch=(("block_m", block_m), ("block_n", block_n)),
            )
        )
    return found


def outputs(case: Case) -> dict[str, torch.Tensor]:
    problem, _ = materialize(case, BUNDLED.device())
    forward = BUNDLED.forward(problem)
    gradients = BUNDLED.backward(problem, forward)
    found = (forward.o, forward.lse, gradients.delta, gradients.dq, gradients.dk, gradients.dv)
    return {name: x for name, x in zip(OUTPUTS, found, strict=True) if x is not None}


def dump(path: Path, numerics: str) -> None:
    stored: dict[str, Any] = {}
    if BUNDLED.device() == "cpu":
        from flashverify.interpreter import faithful
        from flashverify.interpreter.hardware import mode

        opened: Any = faithful(*mode(numerics).layers)
    else:
        opened = contextlib.nullcontext()
    begun = time.perf_counter()
    with opened:
        for case in cases():
            refusal = BUNDLED.supports.refusal(case)
            if refusal:
                print(f"refused: {refusal}: {format_case(case)}", file=sys.stderr)
                continue
            for name, x in outputs(case).items():
                bits = x.contiguous().view(torch.int16 if x.itemsize == 2 else torch.int32)
                stored[f"{format_case(case)}|{name}"] = bits.cpu().numpy()
        about = {"evidence": BUNDLED.evidence(), "triton": triton.__version__, "torch": torch.__version__}
    names = sorted(stored)
    np.savez_compressed(
        path,
        allow_pickle=False,
        index=np.array(json.dumps({"about": about, "names": names})),
        **{str(n): stored[name] for n, name in enumerate(names)},
    )
    size = path.stat().st_size / 1e6
    print(f"{len(names)} outputs of {about['evidence']}, {size:.2f} MB, {time.perf_counter() - begun:.1f} s")


def load(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as stored:
        index = json.loads(str(stored["index"]))
        return index["about"], {name: stored[str(n)] for n, name in enumerate(index["names"])}


def ordinals(bits: Any) -> Any:
    """Integers in the order of the values that the patterns stand for; both zeros are 0."""
    wide = bits.astype(np.int64)
    top = 1 << (bits.itemsize * 8 - 1)
    return np.where(wide < 0, -(wide + top), wide)


def nan(bits: Any, case: Case, output: str) -> Any:
    if bits.itemsize == 4:
        return np.isnan(bits.view(np.float32))
    limit = 0x7C00 if case.dtype == "fp16" and output not in ("lse", "delta") else 0x7F80
    return (bits & 0x7FFF) > limit


def compare(one: Path, other: Path) -> None:
    (about_one, first), (about_other, second) = load(one), load(other)
    rows: dict[tuple[str, str], list[Any]] = {}
    for key in sorted(first.keys() & second.keys()):
        text, output = key.rsplit("|", 1)
        case, x, y = parse_case(text), first[key], second[key]
        nan_x, nan_y = nan(x, case, output), nan(y, case, output)
        both = nan_x & nan_y
        distance = np.where(nan_x | nan_y, 0, np.abs(ordinals(x) - ordinals(y)))
        kind = case.dtype if case.dtype != "fp32" else f"fp32 ({case.precision})"
        row = rows.setdefault((output, kind), [0, 0, 0, 0, 0, -1, ""])
        row[0] += 1
        row[1] += int(((x == y) | both).sum())
        row[2] += x.size
        row[3] += int(np.array_equal(np.where(both, 0, x), np.where(both, 0, y)))
        row[4] += int((nan_x != nan_y).sum())
        if distance.max(initial=0) > row[5]:
            row[5], row[6] = int(distance.max(initial=0)), f"{case.values.regime}, {_mask(case)}"
    print(f"A: {about_one}\nB: {about_other}\n")
    for name, missing in (("A", second.keys() - first.keys()), ("B", first.keys() - second.keys())):
        if missing:
            print(f"{len(missing)} outputs are missing in {name}\n")
    print("| output | dtype | cases | cases equal | elements equal | largest distance, ulp | where | NaN in one only |")
    print("|---|---|---|---|---|---|---|---|")
    for (output, kind), (count, equal, elements, whole, lone, largest, where) in sorted(
        rows.items(), key=lambda row: (OUTPUTS.index(row[0][0]), row[0][1])
    ):
        share = f"{100 * equal / max(elements, 1):.2f} %"
        print(f"| {output} | {kind} | {count} | {whole} | {share} | {largest} | {where} | {lone} |")


def _mask(case: Case) -> str:
    return "tree" if case.mask.tree is not None else "causal" if case.mask.causal else "no mask"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--dump", type=Path, metavar="FILE")
    task.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"))
    parser.add_argument("--numerics", default="ieee", help="of the interpreter; forces it on a machine with a GPU")
    arguments = parser.parse_args()
    if arguments.dump:
        dump(arguments.dump, arguments.numerics)
    else:
        compare(*arguments.compare)


if __name__ == "__main__":
    main()
