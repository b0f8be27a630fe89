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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify.numerics import BoundInputs, backward_bounds, forward_bounds
from flashverify_oracles import (
    Backward,
    ExactAttention,
    Forward,
    abs_difference,
    alibi,
    backward,
    dropout_keep,
    exact_attention,
    forward,
)

OUTPUTS = ("o", "lse", "delta", "dq", "dk", "dv", "dbias", "dsink")
DTYPES = {name: entry.dtype for name, entry in FORMATS.items() if entry.of_kernels}
MODES = ("end to end", "conditional")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Case:
    """One attention problem with what the two oracles are asked."""

    label: dict[str, Any]
    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor
    dlse: Tensor | None
    visible: Tensor | None
    scale: float
    dtype: str
    conditional: bool
    features: dict[str, Any]
    bias_shape: tuple[int, ...] | None


def draw(rng: random.Random) -> Case:
    """A case: shapes up to 8, logits up to 1e5, every kind of mask and feature, values from tiny to large."""
    g = torch.Generator().manual_seed(rng.getrandbits(48))
    hkv, group, B = rng.choice([1, 2]), rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
    Sq, Sk = rng.randint(1, 8), rng.randint(1, 8)
    D, Dv = rng.choice([1, 2, 4, 8, 16]), rng.choice([1, 2, 4, 8])
    dtype = rng.choice(list(DTYPES))
    regime = rng.choice(["normal", "logits", "ties", "duplicate keys", "cancelling v", "constant v", "tiny", "one-hot"])

    def values(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    q, k = values(B, hkv * group, Sq, D), values(B, hkv, Sk, D)
    v, do = values(B, hkv, Sk, Dv), values(B, hkv * group, Sq, Dv)
    scale = rng.choice([1.0, -1.0]) / math.sqrt(D)
    if regime == "logits":
        scale *= 10.0 ** rng.uniform(1, 5)
    elif regime == "ties":
        q, k, scale = q.sign() * 4, k.sign() * 4, scale * 10.0 ** rng.uniform(0, 4)
    elif regime == "duplicate keys":
        k = k[:, :, :1].expand_as(k)
    elif regime == "cancelling v":
        v = v * 0.01 + 1000.0
    elif regime == "constant v":
        v = v[:, :, :1].expand_as(v)
    elif regime == "tiny":
        q, v, do = q * 2.0**-12, v * 2.0**-12, do * 2.0**-12
    elif regime == "one-hot":
        scale *= 300.0
    if rng.random() < 0.05:
        scale = 0.0
    mask = rng.choice(["none", "causal top-left", "causal bottom-right", "random", "no key"])
    rows, keys = torch.arange(Sq)[:, None], torch.arange(Sk)
    visible = {
        "none": None,
        "causal top-left": rows >= keys,
        "causal bottom-right": rows + Sk - Sq >= keys,
        "random": torch.rand(B, hkv * group, Sq, Sk, generator=g) < 0.5,
        "no key": (torch.rand(Sq, Sk, generator=g) < 0.8) & (torch.rand(Sq, 1, generator=g) < 0.7),
    }[mask]
    dlse = values(B, hkv * group, Sq) if rng.random() < 0.5 else None
    conditional = rng.random() < 0.4
    q, k, v, do = (x.to(DTYPES[dtype]) for x in (q, k, v, do))
    label = {
        "regime": regime, "mask": mask, "dtype": dtype, "shape": [B, hkv * group, hkv, Sq, Sk, D, Dv], "scale": scale.hex(),
        "dlse": dlse is not None, "mode": MODES[conditional],
    }  # fmt: skip
    features, bias_shape = draw_features(rng, g, (B, hkv * group, Sq, Sk), DTYPES[dtype])
    label["features"] = "+".join(name for name in features if name != "keep") or "none"
    return Case(
        label=label, q=q, k=k, v=v, do=do, dlse=dlse, visible=visible, scale=scale, dtype=dtype, conditional=conditional,
        features=features, bias_shape=bias_shape,
    )  # fmt: skip


def draw_features(
    rng: random.Random, g: torch.Generator, sizes: tuple[int, int, int, int], dtype: torch.dtype
) -> tuple[dict[str, Any], tuple[int, ...] | None]:
    """Softcap, biases, sink and dropout, each in a third of the cases, and the shape of a bias that wants a gradient."""
    B, Hq, Sq, Sk = sizes
    features: dict[str, Any] = {}
    bias_shape = None
    if rng.random() < 1 / 3:
        features["softcap"] = rng.choice([0.1, 1.0, 30.0, 50.0])
    biases = []
    if rng.random() < 1 / 3:
        bias_shape = (rng.choice([1, B]), rng.choice([1, Hq]), Sq, Sk)
        biases.append((torch.randn(bias_shape, generator=g) * 10.0 ** rng.uniform(-2, 3)).to(dtype))
    if rng.random() < 1 / 3:
        slopes = torch.tensor([2.0 ** (-8 * (h + 1) / Hq) for h in range(Hq)])
        row, key = torch.arange(Sq).expand(B, -1) + rng.choice([0, Sk - Sq]), torch.arange(Sk).expand(B, -1)
        biases.append(alibi(slopes, row, key))
    if biases:
        features["biases"] = biases
    if rng.random() < 1 / 3:
        features["sink"] = torch.randn(Hq, generator=g) * 10.0 ** rng.uniform(-1, 3)
    if rng.random() < 1 / 3:
        p = rng.choice([2.0**-33, 0.1, 0.5, 0.9])
        row, key = torch.arange(Sq).expand(B, -1), torch.arange(Sk).expand(B, -1)
        sequence = torch.arange(B)[:, None].expand(B, Sq)
        seed, offset = rng.getrandbits(64), rng.getrandbits(32)
        keep = dropout_keep(seed=seed, offset=offset, p=p, heads=Hq, sequence=sequence, row=row, key=key)
        features |= {"keep": keep, "dropout": p}
    return features, bias_shape


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
