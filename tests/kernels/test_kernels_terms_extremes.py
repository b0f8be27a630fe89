"""Softcap, ALiBi, bias, sinks and dropout at the ends of their ranges, and where they must change nothing."""

import math

import pytest
import torch

from flashverify_kernels import Dropout
from tests.kernels.terms_reference import TOLERANCE, compare, problem, reference, run


def test_a_row_without_keys_stays_empty_with_a_sink_and_gives_it_no_gradient(blocks):
    tensors, do, dlse = problem(sink=True, bias=(1, 1))
    lengths = torch.tensor([0, 0], dtype=torch.int32)
    got = run(tensors, do, dlse, key_lengths=lengths, dropout=Dropout(0.5), config=blocks(16, 16))
    assert bool((got.pop("lse") == -math.inf).all())
    for name, x in got.items():
        assert bool((x == 0).all()), name


def test_a_sink_of_minus_infinity_is_none_at_all(blocks):
    tensors, do, dlse = problem()
    plain = run(tensors, do, dlse, config=blocks(16, 16))
    got = run({**tensors, "sink": torch.full((2,), -math.inf)}, do, dlse, config=blocks(16, 16))
    assert got.pop("dsink").tolist() == [0.0] * 2
    for name, x in plain.items():
        assert torch.equal(got[name], x), name


@pytest.mark.parametrize("size", [3e38, -3e38, 1e5, -1e5])
def test_sinks_of_any_size_give_finite_results(blocks, size):
    tensors, do, dlse = problem()
    got = run({**tensors, "sink": torch.full((2,), size)}, do, dlse, causal="top-left", config=blocks(16, 16))
    for name, x in got.items():
        assert bool(x.isfinite().all()), name
    assert bool((got["o"] == 0).all()) == (size > 0)


def test_no_dropout_is_the_same_bits(blocks):
    tensors, do, dlse = problem()
    plain = run(tensors, do, dlse, config=blocks(16, 16))
    for name, x in run(tensors, do, dlse, dropout=Dropout(0.0, 5, 6), config=blocks(16, 16)).items():
        assert torch.equal(plain[name], x), name


def test_dropout_does_not_depend_on_the_tiles_and_leaves_the_lse_alone(blocks):
    tensors, do, dlse = problem(torch.float16)
    plain = run(tensors, do, dlse, config=blocks(16, 16))
    first, second = (run(tensors, do, dlse, dropout=Dropout(0.5, 9), config=blocks(*b)) for b in ((16, 16), (32, 64)))
    assert torch.equal(first["lse"], plain["lse"])
    compare(first, {name: x.double() for name, x in second.items()}, torch.float16)
    other = run(tensors, do, dlse, dropout=Dropout(0.5, 9, 1), config=blocks(16, 16))
    assert not torch.equal(other["o"], first["o"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_biases_at_the_end_of_their_type_give_finite_results(blocks, dtype):
    tensors, do, dlse = problem(dtype, bias=(1, 1))
    most = torch.finfo(dtype).min
    tensors["bias"][..., :33] = most  # whole tiles, so a first maximum would be -inf
    tensors["bias"][:, :, 3] = most  # a whole row
    tensors["bias"][:, :, 4] = -most
    got = run(tensors, do, dlse, config=blocks(16, 16))
    for name, x in got.items():
        assert bool(x.isfinite().all()), name
    cut = {name: x[:, :, 33:] if name in "kv" else x for name, x in tensors.items()}
    cut["bias"] = cut["bias"][..., 33:]
    rows = [0, 1, 2, *range(5, 21)]
    expected = reference(cut, do, dlse, torch.ones(2, 1, 21, 4, dtype=torch.bool), scale=0.25)
    assert float((got["o"][:, :, rows].double() - expected["o"][:, :, rows]).abs().max()) < 4 * TOLERANCE[dtype]


def test_a_bias_of_minus_infinity_is_no_mask_but_no_nan_either(blocks):
    tensors, do, dlse = problem(bias=(1, 1))
    tensors["bias"][..., :20] = -math.inf
    for name, x in run(tensors, do, dlse, config=blocks(16, 16)).items():
        assert bool(x.isfinite().all()), name


def test_biases_of_any_strides(blocks):
    tensors, do, dlse = problem(bias=(2, 2))
    plain = run(tensors, do, dlse, config=blocks(16, 16))
    bias = tensors["bias"]
    wide = torch.full((2, 21, 2, 50), math.nan)
    wide[..., :37] = bias.permute(1, 2, 0, 3)
    tensors["bias"] = wide.permute(2, 0, 1, 3)[..., :37]
    for name, x in run(tensors, do, dlse, config=blocks(16, 16)).items():
        assert torch.equal(plain[name], x), name
    tensors["bias"] = bias[:1, :1].expand(2, 2, 21, 37)
    expanded = run(tensors, do, dlse, config=blocks(16, 16))
    tensors["bias"] = bias[:1, :1]
    shared = run(tensors, do, dlse, config=blocks(16, 16))
    assert torch.allclose(expanded.pop("dbias").sum((0, 1), keepdim=True), shared.pop("dbias"), atol=1e-5)
    for name, x in shared.items():
        assert torch.equal(expanded[name], x), name


def test_the_layout_of_the_bias_does_not_follow_that_of_the_inputs(blocks):
    tensors, do, dlse = problem(bias=(1, 2), sink=True)
    plain = run(tensors, do, dlse, config=blocks(16, 16))
    flipped = {name: x.transpose(1, 2) if name in "qkv" else x for name, x in tensors.items()}
    got = run(flipped, do.transpose(1, 2), dlse, layout="bshd", config=blocks(16, 16))
    for name, x in plain.items():
        assert torch.equal(got[name].transpose(1, 2) if name in ("o", "dq", "dk", "dv") else got[name], x), name


@pytest.mark.parametrize("scale", [0.0, 2.0**-140])
def test_a_hidden_key_whose_product_overflows_is_not_felt_under_a_softcap(blocks, scale):
    tensors, do, dlse = problem()
    options = {"causal": "top-left", "softcap": 50.0, "scale": scale, "config": blocks(16, 16)}
    plain = run(tensors, do, dlse, **options)
    tensors["k"][..., 30:, :] = torch.finfo(torch.float32).max  # no row sees these keys
    got = run(tensors, do, dlse, **options)
    for name, x in plain.items():
        assert torch.equal(got[name], x), name
