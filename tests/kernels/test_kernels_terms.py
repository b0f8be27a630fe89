"""Softcap, ALiBi, bias, sinks and dropout: forward and backward against autograd in float64."""

import math
import re

import numpy as np
import pytest
import torch

from flashverify.interpreter import session
from flashverify_kernels import Bitmap, Dropout, Options, Packed, attention, attention_varlen, backward, forward
from flashverify_kernels.runtime import INTERPRETED

TOLERANCE = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def philox(counter, seed):
    """Philox4x32-10 of arrays of counters: four arrays of words."""
    c = [np.asarray(x, np.uint64) for x in np.broadcast_arrays(*counter)]
    k = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [b >> half ^ c[1] ^ k[0], b & low, a >> half ^ c[3] ^ k[1], a & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def kept(dropout, batch, heads, sq, sk):
    """`[B, Hq, Sq, Sk]` bool."""
    stream = np.arange(batch * heads).reshape(batch, heads, 1, 1)
    quad = np.arange(-(-sk // 4)).reshape(1, 1, 1, -1)
    words = philox((quad, np.arange(sq).reshape(1, 1, -1, 1), stream, dropout.offset), dropout.seed)
    words = np.stack(words, -1).reshape(batch, heads, sq, -1)[..., :sk]
    return torch.as_tensor((words >= math.floor(dropout.p * 2**32)).copy(), device=torch.get_default_device())


def reference(tensors, do, dlse, see, *, scale, softcap=None, alibi_slopes=None, shift=0, dropout=None):
    """Outputs and gradients by name; `tensors` has q, k, v and perhaps bias and sink, `see` is `[B, 1, Sq, Sk]`."""
    x = {name: value.detach().double().requires_grad_() for name, value in tensors.items()}
    group = x["q"].shape[1] // x["k"].shape[1]
    k, v = x["k"].repeat_interleave(group, 1), x["v"].repeat_interleave(group, 1)
    s = scale * x["q"] @ k.transpose(2, 3)
    batch, heads, sq, sk = s.shape
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if "bias" in x:
        s = s + x["bias"]
    if alibi_slopes is not None:
        i, j = torch.arange(sq)[:, None], torch.arange(sk)[None, :]
        shift = torch.as_tensor(shift).reshape(-1, 1, 1, 1)
        s = s - alibi_slopes.double()[:, None, None] * (i + shift - j).abs()
    row = see.any(-1, keepdim=True).expand(batch, heads, sq, 1)
    s = torch.where(row, torch.where(see, s, -math.inf), 0.0)
    if "sink" in x:
        s = torch.cat([s, x["sink"][None, :, None, None].expand(batch, heads, sq, 1)], -1)
    lse = torch.logsumexp(s, -1)
    p = torch.where(row & see, torch.exp(s - lse[..., None])[..., :sk], 0.0)
    if dropout is not None:
        p = p * kept(dropout, batch, heads, sq, sk) / (1 - dropout.p)
    o = p @ v
    filled = row[..., 0]
    torch.autograd.backward([o, lse], [do.double(), torch.where(filled, dlse.double(), 0.0)])
    gradients = {f"d{name}": value.grad for name, value in x.items()}
    return {"o": o.detach(), "lse": torch.where(filled, lse.detach(), -math.inf), **gradients}


def draw(*shape, seed, dtype=torch.float32):
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cpu").to(torch.get_default_device()).to(dtype)


def problem(dtype=torch.float32, *, batch=2, heads=2, kv_heads=1, sq=21, sk=37, d=16, dv=16, bias=None, sink=False):
    tensors = {
        "q": 2 * draw(batch, heads, sq, d, seed=0, dtype=dtype),
        "k": draw(batch, kv_heads, sk, d, seed=1, dtype=dtype),
        "v": draw(batch, kv_heads, sk, dv, seed=2, dtype=dtype),
    }
    if bias is not None:
        tensors["bias"] = draw(*bias, sq, sk, seed=3, dtype=dtype)
    if sink:
        tensors["sink"] = torch.linspace(-2, 3, heads)
    return tensors, draw(batch, heads, sq, dv, seed=4, dtype=dtype), draw(batch, heads, sq, seed=5)


def run(tensors, do, dlse, **options):
    x = {name: value.detach().requires_grad_() for name, value in tensors.items()}
    o, lse = attention(**x, return_lse=True, allow_interpreted_bf16=True, **options)
    torch.autograd.backward([o, lse], [do, dlse])
    return {"o": o.detach(), "lse": lse.detach(), **{f"d{name}": value.grad for name, value in x.items()}}


def compare(got, wanted, dtype):
    assert got.keys() == wanted.keys()
    for name, y in wanted.items():
        x = got[name].double()
        assert x.shape == y.shape, name
        assert torch.equal(x == -math.inf, y == -math.inf), name
        x, y = x[y != -math.inf], y[y != -math.inf]
        size = max(1.0, float(y.abs().max())) if y.numel() else 1.0
        error = float((x - y).abs().max()) if y.numel() else 0.0
        assert error <= TOLERANCE[dtype] * size, f"{name}: error {error:.2e} at magnitude {size:.2e}"


def slopes(heads):
    return 2.0 ** (-8 * torch.arange(1.0, heads + 1) / heads)


TERMS = {
    "softcap": {"softcap": 1.5},
    "small cap": {"softcap": 1e-3},
    "large cap": {"softcap": 1e4},
    "alibi": {"alibi_slopes": True},
    "bias": {"bias": (2, 2)},
    "bias of one batch": {"bias": (1, 2)},
    "bias of one head": {"bias": (2, 1)},
    "bias for all": {"bias": (1, 1)},
    "sink": {"sink": True},
    "dropout": {"dropout": Dropout(0.3, 2**63 + 12345, 2**32 - 7)},
    "much dropout": {"dropout": Dropout(0.9, 1)},
    "all": {"softcap": 2.0, "alibi_slopes": True, "bias": (1, 2), "sink": True, "dropout": Dropout(0.25, 77, 3)},
}
MASKS = {
    "none": {},
    "causal": {"causal": "bottom-right"},
    "top-left with lengths": {"causal": "top-left", "key_lengths": [37, 17]},
    "bottom-right with lengths": {"causal": "bottom-right", "key_lengths": [0, 19], "query_lengths": [21, 18]},
    "window": {"causal": "bottom-right", "window": (9, 0)},
    "window alone": {"window": (5, 3), "query_lengths": [11, 21]},
    "bits": {"bitmap": True},
}


def masked(name, sq=21, sk=37, batch=2):
    """The options of a mask, the pairs that it lets through and the shift of each batch."""
    given = dict(MASKS[name])
    options = {**given}
    n_q, n_k = (torch.tensor(given.get(key, [n] * batch)) for key, n in (("query_lengths", sq), ("key_lengths", sk)))
    shift = n_k - n_q if given.get("causal") == "bottom-right" else 0 * n_k
    i, j = torch.arange(sq)[None, :, None], torch.arange(sk)[None, None, :]
    see = (i < n_q[:, None, None]) & (j < n_k[:, None, None])
    distance = j - i - shift[:, None, None]
    left, right = given.get("window", (None, None))
    if given.get("causal"):
        see = see & (distance <= 0)
    if left is not None:
        see = see & (distance >= -left)
    if right is not None:
        see = see & (distance <= right)
    if "bitmap" in given:
        bits = draw(batch, sq, sk, seed=9) > 0.8
        bits[:, :, 16:32] = False
        see, options["bitmap"] = see & bits, Bitmap.from_bool(bits[:, None])
    for key in ("query_lengths", "key_lengths"):
        if key in given:
            options[key] = torch.tensor(given[key], dtype=torch.int32)
    return options, see[:, None], shift


def check(term, mask, dtype, config, **sizes):
    given = dict(TERMS[term])
    tensors, do, dlse = problem(dtype, bias=given.pop("bias", None), sink=given.pop("sink", False), **sizes)
    if "alibi_slopes" in given:
        given["alibi_slopes"] = slopes(tensors["q"].shape[1])
    options, see, shift = masked(mask)
    got = run(tensors, do, dlse, scale=0.3, config=config, **given, **options)
    compare(got, reference(tensors, do, dlse, see, scale=0.3, shift=shift, **given), dtype)
    return got, see


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("term", TERMS)
def test_every_term_agrees_with_autograd(blocks, term, dtype):
    check(term, "none", dtype, blocks(16, 32))


# Every mask meets all terms at once; each alone meets the two masks that differ most from none.
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("block", [(16, 32), (32, 16)])
def test_all_terms_together_agree_with_autograd_under_every_mask(blocks, mask, block):
    check("all", mask, torch.float32, blocks(*block))


@pytest.mark.parametrize("mask", ["bottom-right with lengths", "window"])
@pytest.mark.parametrize("term", ["softcap", "alibi", "bias", "sink", "dropout"])
def test_every_term_agrees_with_autograd_under_masks(blocks, term, mask):
    check(term, mask, torch.float16, blocks(16, 16))


@pytest.mark.parametrize("mask", ["bottom-right with lengths", "window", "bits"])
def test_the_gradient_of_a_bias_is_exactly_zero_where_no_query_sees_the_key(blocks, mask):
    got, see = check("bias", mask, torch.float32, blocks(16, 16))
    assert bool((got["dbias"][~see.expand_as(got["dbias"])] == 0).all())


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


def test_only_what_is_asked_for_is_computed():
    tensors, do, _ = problem(bias=(1, 1), sink=True)
    options = Options(bias=tensors["bias"], sink=tensors["sink"])
    inputs = [tensors[name] for name in "qkv"]
    o, lse2 = forward(*inputs, options)
    every = backward(do, *inputs, o, lse2, options)
    for n, name in enumerate(("dq", "dk", "dv", "dbias", "dsink")):
        needs = tuple(m == n for m in range(5))
        got = backward(do, *inputs, o, lse2, options, needs=needs)
        for other in ("dq", "dk", "dv", "dbias", "dsink"):
            assert (getattr(got, other) is None) == (other != name)
        assert torch.equal(getattr(got, name), getattr(every, name))


def test_packed_sequences_take_terms_as_if_alone(blocks):
    lengths_q, lengths_k = [5, 0, 19, 3], [9, 4, 19, 0]
    cu_q, cu_k = (torch.tensor([0, *np.cumsum(n)], dtype=torch.int32) for n in (lengths_q, lengths_k))
    tensors, do, dlse = problem(batch=1, sq=sum(lengths_q), sk=sum(lengths_k), sink=True)
    terms = {"softcap": 2.0, "alibi_slopes": slopes(2), "causal": "bottom-right", "scale": 0.3}
    rows = sum(lengths_q) + 4
    x = {name: tensors[name][0].transpose(0, 1).contiguous() for name in "qkv"}
    x["q"] = torch.cat([x["q"], torch.full((4, 2, 16), math.nan)])
    x = {name: value.requires_grad_() for name, value in {**x, "sink": tensors["sink"]}.items()}
    dropout = Dropout(0.2, 5, 8)
    o, lse = attention_varlen(
        *(x[name] for name in "qkv"), cu_q, cu_k, max_q=19, max_k=19, sink=x["sink"], dropout=dropout,
        config=blocks(16, 16), **terms,
    )  # fmt: skip
    end = torch.full((4, 2, 16), math.nan)
    torch.autograd.backward(
        [o, lse], [torch.cat([do[0].transpose(0, 1), end]), torch.cat([dlse[0], torch.full((2, 4), math.nan)], 1)]
    )
    assert o.shape[0] == rows
    dsink = torch.zeros(2, dtype=torch.float64)
    terms.pop("causal")
    for n, (a, b) in enumerate(zip(cu_q.tolist()[:-1], cu_q.tolist()[1:], strict=True)):
        c, e = cu_k[n], cu_k[n + 1]
        part = {"q": tensors["q"][:, :, a:b], "k": tensors["k"][:, :, c:e], "v": tensors["v"][:, :, c:e]}
        if not b - a:
            continue
        shift = int(e - c) - (b - a)
        i, j = torch.arange(b - a)[:, None], torch.arange(int(e - c))[None, :]
        # the words of sequence n are those of batch n
        whole = {name: torch.cat([value] * (n + 1)) for name, value in part.items()}
        wanted = reference(
            {**whole, "sink": tensors["sink"]},
            torch.cat([torch.zeros_like(do[:, :, a:b])] * n + [do[:, :, a:b]]),
            torch.cat([torch.zeros_like(dlse[:, :, a:b])] * n + [dlse[:, :, a:b]]),
            (j <= i + shift)[None, None].expand(n + 1, 1, -1, -1),
            shift=shift,
            dropout=dropout,
            **terms,
        )
        dsink += wanted.pop("dsink")
        got = {"o": o[a:b].detach(), "dq": x["q"].grad[a:b], "dk": x["k"].grad[c:e], "dv": x["v"].grad[c:e]}
        got = {name: value.transpose(0, 1) for name, value in got.items()} | {"lse": lse[:, a:b].detach()}
        compare(got, {name: wanted[name][n] for name in got}, torch.float32)
    compare({"dsink": x["sink"].grad}, {"dsink": dsink}, torch.float32)


@pytest.mark.skipif(not INTERPRETED, reason="sessions interpret")
@pytest.mark.usefixtures("opens_sessions")
@pytest.mark.parametrize("mask", ["causal", "bits"])
def test_a_session_computes_the_same_bits_in_lockstep(blocks, mask):
    tensors, do, dlse = problem(bias=(2, 2), sink=True)
    options, _, _ = masked(mask)
    terms = {"softcap": 2.0, "alibi_slopes": slopes(2), "dropout": Dropout(0.25, 77, 3), "config": blocks(16, 16)}
    with session(lockstep=False):
        plain = run(tensors, do, dlse, **terms, **options)
    with session() as opened:
        for name, x in run(tensors, do, dlse, **terms, **options).items():
            assert torch.equal(plain[name], x), name
        assert not opened.fallbacks


def test_changing_a_bias_between_forward_and_backward_is_noticed():
    tensors, do, _ = problem(bias=(1, 1))
    o = attention(tensors["q"].requires_grad_(), tensors["k"], tensors["v"], bias=tensors["bias"])
    tensors["bias"].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.backward(do)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"softcap": "1"}, TypeError, "softcap: expected a number, got '1' (str)"),
        ({"softcap": 0.0}, ValueError, "softcap: expected a positive number from 2^-100 to 2^100, got 0.0"),
        ({"softcap": -1.0}, ValueError, "softcap: expected a positive number from 2^-100 to 2^100, got -1.0"),
        ({"softcap": math.nan}, ValueError, "softcap: expected a positive number from 2^-100 to 2^100, got nan"),
        ({"softcap": 1e-20, "scale": 1e30}, ValueError, "softcap: expected scale / softcap to be a finite fp32 number"),
        ({"alibi_slopes": [1.0]}, TypeError, "alibi_slopes: expected a tensor, got list"),
        ({"alibi_slopes": torch.zeros(2).half()}, TypeError, "alibi_slopes: expected torch.float32, got torch.float16"),
        ({"alibi_slopes": torch.zeros(1)}, ValueError, "alibi_slopes: expected shape (2,), one per query head, got (1,)"),
        ({"alibi_slopes": torch.zeros(2, requires_grad=True)}, ValueError, "alibi_slopes: slopes have no gradient"),
        ({"sink": torch.zeros(2, 1)}, ValueError, "sink: expected shape (2,), one per query head, got (2, 1)"),
        ({"bias": torch.zeros(4, 6).double()}, TypeError, "bias: expected torch.float32, got torch.float64"),
        ({"bias": torch.zeros(4, 6)}, ValueError,
         "bias: expected shape (1, 2, 4, 6), the first two axes possibly 1, got (4, 6)"),
        ({"bias": torch.zeros(1, 2, 4, 1)}, ValueError, "bias: expected shape (1, 2, 4, 6)"),
        ({"bias": torch.zeros(1, 3, 4, 6)}, ValueError, "bias: expected shape (1, 2, 4, 6)"),
        ({"bias": torch.zeros(1, 2, 6, 4).transpose(2, 3)}, ValueError, "bias: the last axis must have stride 1"),
        ({"bias": torch.zeros(1, 2, 4, 6, device="meta")}, ValueError, "bias: expected device cpu (that of q), got meta"),
        ({"dropout": 0.1}, TypeError, "dropout: expected a Dropout, got float"),
    ],
)  # fmt: skip
@pytest.mark.skipif(not INTERPRETED, reason="the tensors are made for the CPU")
def test_terms_are_refused_by_name_and_value(options, error, message):
    q, k = torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 6, 8)
    with pytest.raises(error, match=re.escape(message)):
        attention(q, k, k, **options)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((True,), TypeError, "p: expected a number, got True (bool)"),
        ((1.0,), ValueError, "p: expected a number from 0 to below 1, got 1.0"),
        ((-0.1,), ValueError, "p: expected a number from 0 to below 1, got -0.1"),
        ((math.nan,), ValueError, "p: expected a number from 0 to below 1, got nan"),
        ((0.1, 2**64), ValueError, "seed: expected a whole number from 0 to 2^64 - 1"),
        ((0.1, 0, -1), ValueError, "offset: expected a whole number from 0 to 2^32 - 1, got -1"),
        ((0.1, 0.5), TypeError, "seed: expected a whole number, got 0.5 (float)"),
    ],
)
def test_dropout_is_refused_by_name_and_value(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Dropout(*arguments)


def test_packed_sequences_take_no_bias():
    q = torch.zeros(1, 2, 4, 8)
    cu = torch.tensor([0, 4], dtype=torch.int32)
    with pytest.raises(ValueError, match="bias: not accepted with packed sequences"):
        forward(q, q, q, Options(bias=torch.zeros(1, 2, 4, 4), packed=Packed(cu, cu, 4, 4)))
