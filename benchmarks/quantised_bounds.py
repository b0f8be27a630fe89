"""How the bounds of quantised attention compare with the flat rule `u_P max|V| + u_O |ref|` of other suites.

For each format of weights and each way to dequantise: the median over elements of bound / flat, and the share of elements whose bound
is the narrower one. Values are normal, the cache is fitted; max|V| is that of the head, the narrowest reading of the rule. u_P is the unit
roundoff of the format of the weights. The bound is the sharper one of the two tiers: forms declare the order of their tiles.

    python benchmarks/quantised_bounds.py [--architecture sm_90] [--keys 512]
"""

import argparse

import torch

from flashverify.case.memory.materialize import materialize
from flashverify.case.text import parse_case
from flashverify.formats import FORMATS
from flashverify.numerics import Form
from flashverify.truth import Truth, inputs_of

E4M3_U = 2.0**-4
SETTINGS = (
    ("weights in e4m3, fp8 products", "e4m3/head/fitted", {"p_dtype": "e4m3", "p_factor": 256.0, "products": "fp8_pv", "fp8_chain": 64, "v_scale_last": True}),
    ("weights in e4m3, products of fp16", "e4m3/head/fitted", {"p_dtype": "e4m3", "p_factor": 256.0, "v_scale_last": True}),
    ("weights in fp16, folded scales", "e4m3/head/fitted", {"v_scale_last": True}),
    ("weights in fp16, folded scales of tokens", "e4m3/token/fitted", {}),
    ("weights in fp16, operands rounded", "int8/block16/fitted", {"dequantised": "operand"}),
    ("nothing declared", "int8/block16/fitted", {"dequantised": "unknown", "key_order": "unknown"}),
)  # fmt: skip


def compared(quantised: str, form: Form, keys: int, dtype: str) -> torch.Tensor:
    """Bound / flat of every element of O."""
    case = parse_case(
        f"fv1 batch=2 heads_q=4 heads_kv=2 seq_q=64 seq_k={keys} dim_qk=128 dim_v=128 dtype={dtype} quantised={quantised} backward=no"
    )
    inputs, _ = inputs_of(materialize(case)[0])
    truth = Truth(inputs, dtype, form)
    _, bound = truth.strict().get("o") or truth.forward()["o"]
    u_p = E4M3_U if form.p_dtype else FORMATS[dtype].u
    exact = truth.exact("o")
    largest = inputs.v.abs().amax((2, 3), keepdim=True).repeat_interleave(2, 1)
    flat = u_p * largest + FORMATS[dtype].u * exact.abs()
    return (bound.bound / flat).flatten()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", default="sm_90", help="of the matrix unit, or ieee")
    parser.add_argument("--keys", type=int, default=512, help="keys of a sequence")
    chosen = parser.parse_args()
    print("| kernel | dtype of q | median of bound / flat rule | narrower |\n| --- | --- | --- | --- |")
    for name, quantised, fields in SETTINGS:
        for dtype in ("fp16", "bf16"):
            given = {
                "dequantised": "folded",
                "gap_c": 1.0,
                "kappa": 2.0,
                "block_n": 64,
                "key_order": "ascending",
                "architecture": chosen.architecture,
                **fields,
            }
            found = compared(quantised, Form(**given), chosen.keys, dtype)
            print(
                f"| {name} | {dtype} | {float(found.median()):.3f} | {float((found < 1).double().mean()):.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
