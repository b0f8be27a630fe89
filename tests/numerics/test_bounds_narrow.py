"""Products and accumulators in 16 bits and a smoothed K: bounds of their own, which they come near to, and the plain one, which they exceed."""

import pytest
import torch

from flashverify.numerics import Form
from tests.numerics.emulator import Emulator
from tests.numerics.ratios import measure
from tests.numerics.regimes import draw

_MATH = (
    {"s_dtype": "input", "dp_dtype": "input", "normalise": "before_cast", "ds_from": "p_rounded", "scale_ds": "before"},
    {"narrow": frozenset({"s", "dp"}), "normalise": "before_cast", "ds_rounded_p": True, "scale_ds_before": True},
)
_KEPT = ({"delta_from": "p", "p_from": "forward"}, {"delta_from": "p", "keep_p": True})
# What is declared, what is played, the regime, the output that shows it, and how close it comes.
_FORMS = (
    ({"s_dtype": "input"}, {"narrow": frozenset({"s"})}, "exact_ties", "lse", 0.2),
    ({"pv_dtype": "input"}, {"narrow": frozenset({"pv"})}, "normal", "o!", 0.2),
    ({"o_accum": "{}"}, {"narrow": frozenset({"acc"})}, "v_constant", "o!", 0.1),
    ({"dp_dtype": "input"}, {"narrow": frozenset({"dp"})}, "v_constant", "dq|", 0.1),
    ({"k_smoothed": True}, {"smoothed": True}, "duplicate", "lse", 0.02),
    ({"normalise": "before_cast"}, {"normalise": "before_cast"}, "normal", "o!", 0.3),
    (_MATH[0] | _KEPT[0], _MATH[1] | _KEPT[1], "exact_ties", "lse", 0.2),
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize(("declared", "played", "regime", "output", "close"), _FORMS)
def test_the_form_holds_and_the_plain_one_does_not(declared, played, regime, output, close, dtype):  # type: ignore[no-untyped-def]
    """A strict comparison is made of the plain form alone; where it shows the rounding, the own form is looked at end to end."""
    name = "fp16" if dtype is torch.float16 else "bf16"
    declared = {field: name if value == "{}" else value for field, value in declared.items()}
    tensors = draw(regime, dtype, (1, 2, 2, 24, 64, 16, 16), 3)
    kernel = Emulator(dtype=dtype, scale=0.25, block_n=16, **played)
    plain_form = {field: declared[field] for field in ("delta_from", "p_from") if field in declared}

    own, plain = (
        measure(kernel, *tensors, scale=0.25, form=Form(block_n=16, key_order="ascending", architecture="ieee", **form))
        for form in (declared, plain_form)
    )

    assert not {n: x for n, x in own.items() if not x < 1 and n not in ("exempt", "vague")}
    assert plain[output] > 1
    assert own[output.rstrip("!")] > close


def test_what_a_narrow_product_cannot_hold_is_exempt() -> None:
    from tests.numerics.bounding import bounds

    q, k, v, do = draw("normal", torch.float16, (1, 1, 1, 4, 4, 16, 16), 2)
    v[:, :, 1:3], do[:, :, 2] = 6e4, 8.0
    q[:, :, 3] = 6e4

    exempt = {}
    for form in (Form(), Form(s_dtype="input", pv_dtype="input", dp_dtype="input")):
        F, B = bounds(q, k, v, do, scale=0.25, dtype="fp16", form=form)
        exempt[form.s_dtype] = F.lse.exempt[0, 0].tolist(), bool(F.o.exempt.all()), B.dq.exempt[0, 0].all(-1).tolist()
    assert exempt["fp32"][:2] == ([False] * 4, False)
    assert exempt["input"][0] == [False, False, False, True]
    assert exempt["input"][1]
    assert exempt["input"][2][2:] == [True, True]
