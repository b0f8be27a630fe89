"""What delta is summed from, and where P comes from: bounds that are reached from below, and defects that exceed them."""

import pytest
import torch

from flashverify.numerics import Form, readings
from tests.numerics.emulator import Emulator
from tests.numerics.ratios import measure
from tests.numerics.regimes import draw

_BACKWARDS = (("p", "lse"), ("p", "forward"), ("o_fp32", "lse"), ("o_fp32", "forward"), ("o", "forward"))


def _ratios(delta_from, p_from, tensors, **played):  # type: ignore[no-untyped-def]
    scale = tensors[0].shape[-1] ** -0.5
    kernel = Emulator(dtype=tensors[0].dtype, scale=scale, delta_from=delta_from, keep_p=p_from == "forward", **played)
    form = Form(delta_from=delta_from, p_from=p_from, exp="poly", block_n=16, architecture="ieee")
    return measure(kernel, *tensors, scale=scale, form=form)


@pytest.mark.parametrize(
    ("p_from", "output", "close"), [("lse", "delta|", 0.9), ("lse", "dv|", 0.95), ("forward", "delta", 0.18)]
)
def test_weights_that_err_towards_dp_come_close_to_the_bound_of_delta(p_from: str, output: str, close: float) -> None:
    """Kept weights are normalised by their own sum and rescaled once a block, of which the bound takes the worst case."""
    q, k, v, do = draw("zeros", torch.float32, (1, 2, 2, 8, 32, 16, 16), 3)
    lean = (do.double() @ v.double().mT).sign()

    ratios = _ratios("p", p_from, (q, k, v, do), lean=lean, exp_error=1590 * 2.0**-24)

    assert all(ratios[name] < 1 for name in ("delta", "delta|", "dq", "dq|", "dk", "dk|", "dv"))
    assert ratios[output] > close


def test_o_at_rounding_ties_comes_close_to_the_bound_of_delta_from_the_unrounded_o() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        q, k = torch.zeros(1, 1, 4, 8, dtype=dtype), torch.zeros(1, 1, 2, 8, dtype=dtype)
        v = torch.ones(1, 1, 2, 8, dtype=dtype)
        v[:, :, 1] += torch.finfo(dtype).eps
        ratios = _ratios("o_fp32", "lse", (q, k, v, torch.ones(1, 1, 4, 8, dtype=dtype)), ulps=0)
        assert 0.9 < ratios["delta|"] < 1


@pytest.mark.parametrize(("delta_from", "p_from"), _BACKWARDS)
@pytest.mark.parametrize("defect", ["delta", "unmasked"])
def test_a_defect_of_the_backward_exceeds_every_reading(delta_from: str, p_from: str, defect: str) -> None:
    tensors = draw("normal", torch.bfloat16, (1, 1, 1, 64, 64, 32, 32), 1)
    scale = 32**-0.5
    vis = torch.ones(64, 64, dtype=torch.bool).tril()
    played = {"delta_from": delta_from, "keep_p": p_from == "forward" and defect == "delta"}
    kernel = Emulator(dtype=torch.bfloat16, scale=scale, defects=frozenset({defect}), **played)  # type: ignore[arg-type]

    ratios = measure(kernel, *tensors, scale=scale, vis=vis, form=Form(delta_from=delta_from, p_from=p_from))

    # The unrounded O moves delta by as much as the rounding of O, which is all that this reading allows.
    assert max(ratios["dq|"], ratios["dk|"], ratios["dv|"]) > (10 if defect == "delta" else 1)


def test_the_forms_bounds_are_sharper_than_those_of_a_stored_o() -> None:
    """A delta of weights has no rounding to 16 bits: end to end it is known to more than ten times the stored one."""
    tensors = draw("normal", torch.bfloat16, (1, 1, 1, 32, 32, 16, 16), 2)
    scale, widths = 0.25, {}
    from tests.numerics.bounding import bounds

    for delta_from in ("o", "o_fp32", "p"):
        form = Form(delta_from=delta_from, p_from="lse")
        _, found = bounds(*tensors, scale=scale, dtype="bf16", form=form)
        widths[delta_from] = float(found.delta.bound.median())
    assert widths["p"] * 10 < widths["o_fp32"] < widths["o"]


def test_an_overflow_of_dp_loses_the_row_of_a_delta_of_weights() -> None:
    """P = 0 of an invisible pair meets an infinite dP, and the sum of the row is NaN."""
    from tests.numerics.bounding import bounds

    q, k, v, do = draw("normal", torch.bfloat16, (1, 1, 1, 4, 4, 16, 16), 2)
    v[:, :, 3] = 3e38
    do[:, :, 1] = 16.0
    vis = torch.ones(4, 4, dtype=torch.bool).tril()
    lost = {}
    for delta_from in ("o", "p"):
        form = Form(delta_from=delta_from, p_from="lse")
        _, found = bounds(q, k, v, do, vis=vis, scale=0.25, dtype="bf16", form=form)
        lost[delta_from] = found.delta.exempt[0, 0].tolist()
    assert lost["p"][1]
    assert not lost["o"][1]


def test_readings_begin_with_the_stored_outputs_and_leave_out_what_a_form_contradicts() -> None:
    every = [(form.delta_from, form.p_from) for form in readings(Form())]

    assert every[:2] == [("o", "lse"), ("p", "forward")]
    assert len(set(every)) == 6
    assert {form.p_from for form in readings(Form(n_splits=2))} == {"lse"}
    assert [form.p_from for form in readings(Form(delta_from="p"))] == ["forward", "lse"]
    assert readings(Form(delta_from="o", p_from="lse")) == (Form(delta_from="o", p_from="lse"),)
    with pytest.raises(ValueError, match="p_from='forward' is not accepted with n_splits > 1"):
        Form(p_from="forward", n_splits=2)
