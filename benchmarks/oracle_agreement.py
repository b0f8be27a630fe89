"""How far float64 is from mpmath, in units of its own a-priori error E64, over random small cases.

Usage: python benchmarks/oracle_agreement.py [--cases 500] [--seed 0] [--json FILE]
A ratio above 1 is a defect of the oracle or of E64; the exit code is then 1.
"""

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from oracle_cases import Case, draw
from torch import Tensor

from flashverify.numerics import BoundInputs, backward_bounds, forward_bounds
from flashverify_oracles import (
    Backward,
    ExactAttention,
    Forward,
    abs_difference,
    backward,
    exact_attention,
    forward,
)

OUTPUTS = ("o", "lse", "delta", "dq", "dk", "dv", "dbias", "dsink")


def stored(case: Case, fwd: Forward) -> dict[str, Any]:
    """What a subject would have stored, for the conditional mode: O in the input dtype, the log-sum-exp in fp32."""
    if not case.conditional:
        return {}
    return {"given_o": fwd.o.to(case.q.dtype), "given_lse": fwd.lse.float()}


def self_error(case: Case, fwd: Forward, bwd: Backward, given: dict[str, Any]) -> dict[str, Tensor]:
    """E64 of every output; NaN where the bound exempts the element and says nothing."""
    problem = BoundInputs.of(
        case.q, case.k, case.v, scale=case.scale, dtype=case.dtype, visible=case.visible, **case.features
    )
    ahead = forward_bounds(problem, fwd.o, fwd.lse)
    behind = backward_bounds(
        problem,
        do=case.do,
        o=given.get("given_o", fwd.o),
        lse=given.get("given_lse", fwd.lse).double(),
        dq=bwd.dq,
        dk=bwd.dk,
        dv=bwd.dv,
        dlse=case.dlse,
        dbias=bwd.dbias,
        dsink=bwd.dsink,
        forward=None if given else ahead,
    )
    bounds = {"o": ahead.o, "lse": ahead.lse} | {name: getattr(behind, name) for name in OUTPUTS[2:]}
    return {
        name: bound.self_error.masked_fill(bound.exempt, math.nan)
        for name, bound in bounds.items()
        if bound is not None
    }


def compare(
    exact: ExactAttention, fwd: Forward, bwd: Backward, allowed: dict[str, Tensor]
) -> dict[str, tuple[float, int, int]]:
    """Worst |float64 - mpmath| / E64 of every output, with the number of elements judged and of those exempt."""
    report = {}
    for name, array in exact.arrays():
        error = torch.from_numpy(abs_difference(array, getattr(fwd if name in ("o", "lse") else bwd, name)))
        bound = allowed[name]
        judged = ~bound.isnan()
        # 0 / 0 is an exact agreement with an exact value.
        ratio = torch.where(error == 0, 0.0, error / bound)[judged]
        worst = float(ratio.max()) if ratio.numel() else 0.0
        report[name] = (worst, int(judged.sum()), int((~judged).sum()))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    if options.cases < 1:
        parser.error(f"--cases must be at least 1, got {options.cases}")
    rng = random.Random(options.seed)
    start, spent = time.perf_counter(), {"float64": 0.0, "mpmath": 0.0}
    worst: dict[str, tuple[float, dict[str, Any]]] = {}
    judged, exempt, precisions = Counter[str](), Counter[str](), Counter[int]()
    for index in range(options.cases):
        case = draw(rng)
        shared: dict[str, Any] = {"scale": case.scale, "visible": case.visible, **case.features}
        clock = time.perf_counter()
        fwd = forward(case.q, case.k, case.v, **shared)
        given = stored(case, fwd)
        asked = {**shared, **given, "dlse": case.dlse, "bias_shape": case.bias_shape}
        bwd = backward(case.q, case.k, case.v, case.do, forward=fwd, **asked)
        spent["float64"] += time.perf_counter() - clock
        clock = time.perf_counter()
        exact = exact_attention(case.q, case.k, case.v, case.do, **asked)
        spent["mpmath"] += time.perf_counter() - clock
        precisions[exact.precision] += 1
        for name, (ratio, count, left_out) in compare(exact, fwd, bwd, self_error(case, fwd, bwd, given)).items():
            judged[name] += count
            exempt[name] += left_out
            if name not in worst or not ratio <= worst[name][0]:
                worst[name] = (ratio, {"index": index, **case.label})
    passed = all(ratio <= 1.0 for ratio, _ in worst.values())
    print(f"{'output':8}{'worst ratio':>14}{'elements':>10}{'exempt':>8}  worst case")
    for name in worst:
        ratio, label = worst[name]
        where = " ".join(f"{key}={value}" for key, value in label.items())
        print(f"{name:8}{ratio:14.3g}{judged[name]:10}{exempt[name]:8}  {where}")
    print(f"{options.cases} cases, seed {options.seed}, {time.perf_counter() - start:.1f} s", end="; ")
    print(", ".join(f"{name} {1e3 * t / options.cases:.2f} ms a case" for name, t in spent.items()), end="; ")
    print("bits of mpmath: " + ", ".join(f"{bits} ({n})" for bits, n in sorted(precisions.items())))
    print("agree within E64" if passed else "DISAGREE")
    if options.json:
        report = {
            "cases": options.cases,
            "seed": options.seed,
            "passed": passed,
            "outputs": {
                name: {
                    "ratio": worst[name][0].hex(),
                    "elements": judged[name],
                    "exempt": exempt[name],
                    "case": worst[name][1],
                }
                for name in worst
            },
            "precisions": {str(bits): n for bits, n in sorted(precisions.items())},
            "torch": torch.__version__,
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
