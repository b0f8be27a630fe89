"""The references that rules compare with are attention, in the precision that they claim."""

import dataclasses

import pytest
import torch
from comparison_rules.references import DTYPES, References

from flashverify.case.case import Case, Edit, Grad, Logits, Values
from flashverify.case.masks.mask import Bitmap, Mask, Packed
from flashverify.case.memory.materialize import materialize
from flashverify.truth import float64_values, inputs_of

SMALL = Case(batch=1, heads_q=4, heads_kv=2, seq_q=9, seq_k=13, dim_qk=16, dim_v=24, values=Values(seed=3))
CASES = {
    "plain": SMALL,
    "dlse": dataclasses.replace(SMALL, grad=Grad(dlse=True)),
    "forward": dataclasses.replace(SMALL, grad=Grad(backward=False)),
    "empty-rows": dataclasses.replace(SMALL, mask=Mask(causal="bottom-right", key_lengths=(5,), query_lengths=(8,))),
    "packed": dataclasses.replace(SMALL, mask=Mask(packed=Packed((0, 4, 8), (0, 1, 12)), window=(3, 2))),
    "bitmap": dataclasses.replace(SMALL, mask=Mask(bitmap=Bitmap(100, 5))),
    "logits": dataclasses.replace(SMALL, logits=Logits(softcap=2.0, alibi=True, bias="head", sink=True)),
    "dropout": dataclasses.replace(SMALL, dropout=0.5),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_references_agree_with_the_oracle(name, dtype):
    case = dataclasses.replace(CASES[name], dtype=dtype)
    problem, _ = materialize(case, "cpu")
    references = References(problem)
    exact = float64_values(inputs_of(problem)[0])

    unit = torch.finfo(DTYPES[dtype]).eps
    for reference, tolerance in (("golden", 1e-13), ("fp32", 4 * unit), ("low", 60 * unit), ("eager", 60 * unit)):
        values = getattr(references, reference)
        assert set(values) == set(exact) - {"delta"}
        for output, value in values.items():
            scale = exact[output].abs().where(exact[output].isfinite(), 0.0).max().clamp_min(1.0)
            torch.testing.assert_close(value.double(), exact[output], rtol=0.0, atol=float(tolerance * scale))


def test_the_baseline_is_less_exact_than_the_reference():
    case = dataclasses.replace(SMALL, seq_q=40, seq_k=40, dtype="bf16")
    problem, _ = materialize(case, "cpu")
    references = References(problem)

    def error(outputs, name):
        return float((outputs[name].double() - references.golden[name]).abs().max())

    for name in ("o", "dq", "dk", "dv"):
        assert error(references.fp32, name) < error(references.low, name)


def test_non_finite_inputs_reach_the_references_and_padding_does_not():
    case = dataclasses.replace(
        SMALL,
        mask=Mask(key_lengths=(7,)),
        values=Values(seed=3, edits=(Edit("v", (0, 0, 2, 1), float("nan")), Edit("v", (0, 1, 9, 1), float("nan")))),
    )
    problem, _ = materialize(case, "cpu", padding="nan")
    o = References(problem).fp32["o"]

    assert o[:, :2, :, 1].isnan().all()
    assert o[:, 2:].isfinite().all()
