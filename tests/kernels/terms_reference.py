"""Attention with softcap, ALiBi, bias, sink and dropout by autograd in float64, and how the kernels are held to it."""

import math

import numpy as np
import torch

from flashverify_kernels import Bitmap, Dropout, attention

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
