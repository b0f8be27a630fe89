"""The public functions: `oracle`, `assert_attention_close`, and the lazy package face."""

import math

import numpy as np
import pytest
import torch

import flashverify
from flashverify import Form, assert_attention_close, oracle

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
CPU_FORM = Form(exp="poly", exp_eps=2000.0)


def problem(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 2, 24, 16, generator=generator).to(dtype) for _ in range(4)]


def computed(dtype=torch.float32, causal=True):
    q, k, v, do = problem(dtype)
    o, lse = FLASH(q, k, v, 0.0, causal)
    dq, dk, dv = FLASH_BACKWARD(do, q, k, v, o, lse, 0.0, causal)
    return (q, k, v), {"do": do, "o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_correct_implementation_passes(dtype):
    inputs, outputs = computed(dtype)

    stats = assert_attention_close(*inputs, **outputs, causal="top-left", form=CPU_FORM)

    assert {(s.output, s.mode) for s in stats} == {
        ("o", "end-to-end"),
        ("lse", "end-to-end"),
        *((name, mode) for name in ("dq", "dk", "dv") for mode in ("end-to-end", "conditional")),
    }


@pytest.mark.parametrize("name", ["o", "lse", "dq", "dk", "dv"])
def test_one_wrong_element_of_any_output_fails_and_is_named(name):
    inputs, outputs = computed()
    wrong = outputs[name].clone()
    index = tuple(size - 1 for size in wrong.shape)
    wrong[index] += 0.01 * wrong.abs().max()

    with pytest.raises(AssertionError, match=rf"{name}\[{', '.join(map(str, index))}\]"):
        assert_attention_close(*inputs, **(outputs | {name: wrong}), causal="top-left", form=CPU_FORM)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_nonfinite_element_fails(value):
    inputs, outputs = computed()
    outputs["o"][1, 1, 3, 5] = value

    with pytest.raises(AssertionError, match=r"o\[1, 1, 3, 5\]"):
        assert_attention_close(*inputs, o=outputs["o"], causal="top-left", form=CPU_FORM)


def test_the_wrong_mask_fails():
    inputs, outputs = computed(causal=False)

    with pytest.raises(AssertionError, match="outside its bounds"):
        assert_attention_close(*inputs, o=outputs["o"], lse=outputs["lse"], causal="top-left", form=CPU_FORM)


def test_lse_is_judged_in_its_declared_base():
    inputs, outputs = computed()
    base_2 = outputs["lse"] / math.log(2)

    assert_attention_close(*inputs, lse=base_2, lse_base="2", causal="top-left", form=CPU_FORM)
    with pytest.raises(AssertionError, match="lse"):
        assert_attention_close(*inputs, lse=base_2, causal="top-left", form=CPU_FORM)


def test_padding_beyond_the_key_lengths_may_hold_anything():
    q, k, v, _ = problem()
    short = [FLASH(q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], 0.0, False) for b, n in enumerate((9, 24))]
    k[0, :, 9:], v[0, :, 9:] = math.nan, math.inf

    assert_attention_close(
        q,
        k,
        v,
        o=torch.cat([o for o, _ in short]),
        lse=torch.cat([lse for _, lse in short]),
        key_lengths=[9, 24],
        form=CPU_FORM,
    )


def test_numpy_and_bfloat16_arrays_are_taken():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    inputs, outputs = computed(torch.bfloat16)
    arrays = [x.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) for x in inputs]

    assert_attention_close(*arrays, lse=outputs["lse"].numpy(), causal="top-left", form=CPU_FORM)


def test_dlpack_tensors_are_taken():
    class Foreign:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    inputs, outputs = computed()

    assert_attention_close(*map(Foreign, inputs), o=Foreign(outputs["o"]), causal="top-left", form=CPU_FORM)


def test_oracle_equals_autograd_of_the_definition():
    q, k, v, do = (x.double() for x in problem())
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    s = leaves[0] @ leaves[1].mT / 4
    s = s.masked_fill(~torch.ones(24, 24, dtype=torch.bool).tril(), -math.inf)
    o = torch.softmax(s, -1) @ leaves[2]
    gradients = torch.autograd.grad(o, leaves, do)

    result = oracle(*(x.float() for x in (q, k, v)), causal="bottom-right", do=do.float())

    for expected, got in zip(
        (o, s.logsumexp(-1), *gradients), (result.o, result.lse, result.dq, result.dk, result.dv), strict=True
    ):
        torch.testing.assert_close(got, expected.detach(), rtol=1e-12, atol=1e-12)


def test_oracle_takes_a_mask_and_gives_empty_rows():
    q, k, v, _ = problem()
    mask = np.ones((24, 24), dtype=bool)
    mask[5] = False

    result = oracle(q, k, v, mask=mask)

    assert result.dq is None
    assert bool((result.lse[:, :, 5] == -math.inf).all())
    assert bool((result.o[:, :, 5] == 0).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(2, 24, 16)}, r"q of shape \[2, 24, 16\]"),
        ({"q": torch.zeros(2, 2, 24, 16, dtype=torch.float64)}, "q of dtype torch.float64"),
        ({"k": torch.zeros(2, 2, 24, 8)}, "do not fit"),
        ({"k": torch.zeros(2, 2, 24, 16, dtype=torch.float16)}, "k of dtype"),
        ({"causal": True}, "causal=True is not accepted"),
        ({"key_lengths": [30, 2]}, "key_lengths"),
        ({"mask": torch.ones(24, 24)}, "mask of dtype"),
        ({"lse_base": "10"}, "lse_base='10'"),
        ({"o": None}, "nothing to judge"),
        ({"dq": torch.zeros(2, 2, 24, 16)}, "do=None"),
        ({"o": torch.zeros(2, 2, 24, 8)}, "o of shape"),
        ({"q": torch.full((2, 2, 24, 16), math.nan)}, "q holds a non-finite value"),
        ({"v": "text"}, "v=str"),
    ],
)
def test_bad_arguments_are_named(change, message):
    (q, k, v), outputs = computed()
    arguments = {"q": q, "k": k, "v": v, "o": outputs["o"]} | change

    with pytest.raises(ValueError, match=message):
        assert_attention_close(**arguments)


def test_the_public_names_are_complete_and_sorted():
    assert flashverify.__all__ == sorted(flashverify.__all__)
    for name in flashverify.__all__:
        assert getattr(flashverify, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = flashverify.nothing
