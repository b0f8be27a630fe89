"""Layouts: the same verdict in each, and a hint where the tensors are right under another one."""

import re

import pytest
import torch

from flashverify import assert_attention_close, oracle

HEADED = ("q", "k", "v", "o", "do", "dq", "dk", "dv")


def bshd(tensors):
    return {name: x.transpose(1, 2).contiguous() if name in HEADED else x for name, x in tensors.items()}


def thd(tensors):
    return {name: x[0].transpose(0, 1) if name in HEADED else x[0] for name, x in tensors.items()}


@pytest.fixture
def computed(draw, attention):
    def compute(dtype=torch.float32, **sizes):
        p = draw(dtype, **sizes)
        outputs = attention(p.q, p.k, p.v, p.do, p.dlse)
        return {"q": p.q, "k": p.k, "v": p.v, "do": p.do, "dlse": p.dlse, **outputs}

    return compute


def test_bshd_is_judged_as_bhsd_with_indices_of_its_own(computed, dtype):
    tensors = computed(dtype)
    other = bshd(tensors)

    dense, turned = assert_attention_close(**tensors), assert_attention_close(**other, layout="bshd")

    assert [(s.output, s.mode, s.worst) for s in dense] == [(s.output, s.mode, s.worst) for s in turned]
    assert [s.index for s in turned if s.output == "dq"] == [
        (b, s, h, d) for b, h, s, d in (s.index for s in dense if s.output == "dq")
    ]
    other["o"][1, 20, 3, 5] += 0.5
    with pytest.raises(AssertionError, match=r"o\[1, 20, 3, 5\] is"):
        assert_attention_close(**other, layout="bshd")


def test_thd_is_judged_sequence_by_sequence(draw, attention, dtype):
    p = draw(dtype, batch=1, rows=24, keys=30)
    cu_q, cu_k = (0, 10, 24), (0, 8, 30)
    parts = [
        attention(
            p.q[:, :, a:b], p.k[:, :, c:d], p.v[:, :, c:d], p.do[:, :, a:b], p.dlse[:, :, a:b],
            visible=torch.ones(b - a, d - c, dtype=torch.bool).tril(d - c - b + a),
        )
        for a, b, c, d in ((0, 10, 0, 8), (10, 24, 8, 30))
    ]  # fmt: skip
    outputs = {name: torch.cat([part[name] for part in parts], 2) for name in parts[0]}
    tensors = thd({"q": p.q, "k": p.k, "v": p.v, "do": p.do, "dlse": p.dlse, **outputs})
    options = {"layout": "thd", "cu_q": torch.tensor(cu_q, dtype=torch.int32), "cu_k": cu_k, "causal": "bottom-right"}

    assert_attention_close(**tensors, **options)
    tensors["dk"][12, 1, 4] += 0.5
    with pytest.raises(AssertionError, match=r"dk\[12, 1, 4\] is"):
        assert_attention_close(**tensors, **options)
    with pytest.raises(AssertionError, match="outside its bounds"):
        assert_attention_close(**tensors, **(options | {"cu_k": (0, 9, 30)}))


@pytest.mark.parametrize(("layout", "turned"), [("bshd", bshd), ("thd", thd)])
def test_the_oracle_answers_in_the_layout_of_its_inputs(layout, turned, computed):
    tensors = computed(batch=1)
    inputs = {name: tensors[name] for name in ("q", "k", "v", "do", "dlse")}
    expected = oracle(**inputs)

    found = oracle(**turned(inputs), layout=layout)

    for name in ("o", "lse", "delta", "dq", "dk", "dv"):
        x = getattr(expected, name)
        x = turned({"o" if x.dim() == 4 else "lse": x}).popitem()[1]
        torch.testing.assert_close(getattr(found, name), x, rtol=0, atol=0)


def test_shapes_that_fit_another_layout_are_said_to(computed):
    tensors = bshd(computed())
    inputs = {name: tensors[name] for name in ("q", "k", "v")}

    with pytest.raises(ValueError, match=r"do not fit layout='bhsd'.*they fit layout='bshd', \[batch, sequence"):
        assert_attention_close(**inputs, o=tensors["o"])
    packed = {name: x[0] for name, x in inputs.items()}
    with pytest.raises(ValueError, match=r"q of shape \[24, 4, 16\].*they fit layout='thd', \[tokens, heads, dim\]"):
        oracle(**packed)


def test_an_output_that_fits_another_layout_is_said_to(computed):
    tensors = bshd(computed(kv=4, keys=24))
    inputs = {name: tensors[name] for name in ("q", "k", "v")}

    with pytest.raises(
        ValueError, match=r"lse of shape \[2, 4, 24\] is not accepted: \[2, 24, 4\]; every shape fits layout='bshd'"
    ):
        assert_attention_close(**inputs, lse=tensors["lse"])
    right = computed()
    inputs = {name: right[name] for name in ("q", "k", "v")}
    with pytest.raises(ValueError, match=r"o of shape \[2, 24, 4, 16\].*it fits with its axes 1 and 2 exchanged"):
        assert_attention_close(**inputs, o=right["o"].transpose(1, 2))
    with pytest.raises(ValueError, match=r"lse of shape \[2, 24, 4\].*it fits with its axes 1 and 2 exchanged"):
        assert_attention_close(**inputs, lse=right["lse"].mT)


def test_values_that_are_right_under_another_layout_are_said_to(computed):
    tensors = bshd(computed(kv=4, keys=24))
    tensors.pop("lse"), tensors.pop("dlse")

    with pytest.raises(AssertionError, match=r"under layout='bshd', \[batch, sequence, heads, dim\], every output is"):
        assert_attention_close(**{name: tensors[name] for name in ("q", "k", "v", "o")})
    square = computed(heads=24, kv=24, rows=24)
    inputs = {name: square[name] for name in ("q", "k", "v", "lse")}
    with pytest.raises(AssertionError, match="with axes 1 and 2 of o exchanged every output is within its bounds"):
        assert_attention_close(**inputs, o=square["o"].transpose(1, 2))


def test_a_wrong_kernel_gets_no_hint(computed):
    tensors = computed(heads=24, kv=24, rows=24, keys=24)
    wrong = tensors["o"].roll(1, 2)

    with pytest.raises(AssertionError) as failure:
        assert_attention_close(tensors["q"], tensors["k"], tensors["v"], o=wrong)
    assert not re.search("layout|exchanged", str(failure.value))


def test_an_unknown_layout_is_named(computed):
    tensors = computed()

    with pytest.raises(ValueError, match=r"layout='sbhd' is not accepted: one of 'bhsd', 'bshd', 'thd'"):
        oracle(tensors["q"], tensors["k"], tensors["v"], layout="sbhd")
