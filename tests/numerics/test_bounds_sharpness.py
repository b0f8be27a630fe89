"""No bound is wider than it needs to be: an upper limit for each output, which a bound made four times as wide exceeds."""

import pytest
import torch

from flashverify.case.memory.materialize import materialize
from flashverify.case.text import parse_case
from flashverify.formats import FORMATS
from flashverify.numerics import Form, OutputBound
from flashverify.truth import Truth, inputs_of

FIXED = {"block_n": 16, "architecture": "ieee", "delta_from": "o", "p_from": "lse"}
EVERYTHING = "batch=2 heads_q=4 heads_kv=2 seq_q=17 seq_k=40 causal=bottom-right dlse=yes seed=1"
LEARNED = f"{EVERYTHING} bias=full sink=yes relative_bias=8,20,both"
# A case beside its dtype, what its form declares, and the largest mean width of each output, in octaves of the spacing of its dtype.
ROWS: dict[str, tuple[str, dict[str, object], str]] = {
    "fp16": (
        f"{LEARNED} dtype=fp16",
        {"key_order": "ascending"},
        "o 2.8 lse 5.2 delta 17.5 dq 5.2 dk 5 dv 2.8 dbias 3.4 dsink 20.1 drelative_bias 19.7 o! 0.4 dv! 0.1 delta| 6.7 dq| 2.9 dk| 2.7 dv| 2.8 dbias| 0.5 dsink| 10.7 drelative_bias| 12.8",
    ),
    "bf16": (
        f"{LEARNED} dtype=bf16",
        {"key_order": "ascending"},
        "o 2.8 lse 5.2 delta 20.5 dq 5.2 dk 5 dv 2.8 dbias 3.4 dsink 23.1 drelative_bias 22.7 o! 0 dv! 0 delta| 6.7 dq| 2.8 dk| 2.7 dv| 2.8 dbias| 0.5 dsink| 10.7 drelative_bias| 12.8",
    ),
    "fp32": (
        f"{LEARNED} dtype=fp32",
        {},
        "o 9.7 lse 5.2 delta 11.5 dq 12.4 dk 12.2 dv 10.3 dbias 10.7 dsink 14.3 drelative_bias 14.5 delta| 6.7 dq| 10.2 dk| 10 dv| 9.3 dbias| 8.2 dsink| 10.7 drelative_bias| 12.8",
    ),
    "tf32x3 with a softcap": (
        f"{LEARNED} dtype=fp32 softcap=5",
        {"dot": "tf32x3", "architecture": "sm_90"},
        "o 10.9 lse 6.1 delta 12.7 dq 13.6 dk 13.5 dv 11.5 dbias 11.9 dsink 15.4 drelative_bias 15.4 delta| 6.8 dq| 11.7 dk| 11.6 dv| 10.7 dbias| 9.6 dsink| 10.8 drelative_bias| 13.6",
    ),
    "matrix unit": (
        f"{LEARNED} dtype=bf16",
        {"architecture": "sm_90"},
        "o 2.8 lse 5.2 delta 20.5 dq 5.2 dk 5 dv 2.8 dbias 3.4 dsink 23.1 drelative_bias 22.7 delta| 6.7 dq| 2.8 dk| 2.7 dv| 2.8 dbias| 0.5 dsink| 10.7 drelative_bias| 12.8",
    ),
    "logits of 1e3": (
        f"{EVERYTHING} dtype=fp32 regime=logits-1e3",
        {},
        "o 7.1 lse 5.5 delta 9.6 dq 15.6 dk 19.5 dv 19 delta| 6.8 dq| 14.5 dk| 18.7 dv| 18.2",
    ),
    "subnormal": (
        f"{EVERYTHING} dtype=fp16 regime=subnormal",
        {},
        "o 0.6 lse 5.2 delta 20.2 dq 0.1 dk 0.1 dv 0.5 delta| 7.1 dq| 0.1 dk| 0.1 dv| 0.5",
    ),
    "scale of 0": (
        f"{EVERYTHING} dtype=bf16 regime=large scale=0",
        {},
        "o 3.8 lse 5.2 delta 21.4 dq 13.3 dk 13.1 dv 5.7 delta| 6.7 dq| 13.3 dk| 13.1 dv| 5.7",
    ),
    "dropout": (
        f"{EVERYTHING} dtype=fp16 dropout=0.5",
        {},
        "o 2.9 lse 5.5 delta 17.6 dq 5.1 dk 5 dv 2.8 delta| 6.7 dq| 3 dk| 2.9 dv| 2.8",
    ),
    "splits": (
        f"{EVERYTHING} dtype=fp16",
        {"n_splits": 3, "partial_dtype": "fp16"},
        "o 4.2 lse 6.8 delta 18.8 dq 6 dk 5.8 dv 3.2 delta| 6.7 dq| 3.1 dk| 3 dv| 3.1",
    ),
    "narrow sums": (
        f"{EVERYTHING} dtype=bf16",
        {"grad_accum": "bf16", "grad_accum_of": "all", "gqa_partial": "input", "o_accum": "bf16"},
        "o 5.8 lse 5.5 delta 23.5 dq 7.7 dk 7.6 dv 5.4 delta| 6.7 dq| 4.9 dk| 5.2 dv| 5.4",
    ),
    "delta of weights": (
        f"{EVERYTHING} dtype=bf16",
        {"delta_from": "p", "p_from": "forward"},
        "o 3.3 lse 5.5 delta 11.1 dq 3.1 dk 3 dv 3.1",
    ),
    "one key a row": (
        "dtype=fp32 heads_q=2 seq_q=16 seq_k=16 window=0,0 regime=logits-1e5 scale=1e4",
        {},
        "o 5.9 lse 6.7 delta 8.3 dq 148.4 dk 149.7 dv 23.4 delta| 6.5 dq| 147 dk| 148.3 dv| 22.3",
    ),
}


def outputs_of(text: str, form: Form) -> dict[str, tuple[torch.Tensor, OutputBound]]:
    """Value and bound of every output: end to end, given the rounded O and LSE (`|`), and from the order of tiles (`!`)."""
    case = parse_case(f"fv1 {text}")
    inputs, _ = inputs_of(materialize(case, "cpu")[0])
    truth = Truth(inputs, case.dtype, form)
    forward = truth.forward()
    own = forward["o"][0].to(FORMATS[case.dtype].dtype), forward["lse"][0].float()
    conditional, strict = truth.given(*own)
    marked = {"!": truth.strict() | strict, "|": conditional}
    return forward | truth.backward() | {f"{k}{mark}": x for mark, of in marked.items() for k, x in of.items()}


def width(value: torch.Tensor, bound: OutputBound, dtype: str) -> float:
    """Mean of log2(bound / spacing of the dtype at the value) over the elements that are not exact."""
    out, kept = FORMATS[dtype], bound.bound > 0
    exponent = torch.frexp(value.double().abs().clamp(min=out.min_normal))[1] - 1
    found = bound.bound.log2() - exponent + out.mantissa
    return float(found[kept].mean())


def widths(text: str, declared: dict[str, object]) -> dict[str, float]:
    dtype = str(parse_case(f"fv1 {text}").dtype)
    found = outputs_of(text, Form(**(FIXED | declared)))  # type: ignore[arg-type]
    fp32 = ("lse", "delta", "dsink", "drelative_bias")
    return {name: width(*x, "fp32" if name.rstrip("|!") in fp32 else dtype) for name, x in found.items()}


@pytest.mark.parametrize("row", ROWS)
def test_every_bound_has_an_upper_limit_that_a_bound_four_times_as_wide_exceeds(row: str) -> None:
    text, declared, listed = ROWS[row]
    words = listed.split()
    limits = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    found = widths(text, declared)
    assert set(found) == set(limits)
    over = {name: octaves for name, octaves in found.items() if not octaves <= limits[name]}
    loose = {name: octaves for name, octaves in found.items() if not octaves + 2 > limits[name]}
    assert (over, loose) == ({}, {})
