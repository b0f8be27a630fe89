"""Decoding by its definition in float64, caches in pages, and how the kernels are held to them."""

import math

import torch

from flashverify_kernels import LaunchConfig
from flashverify_kernels.decode import decode

INF = math.inf
SMALL = LaunchConfig(block_m=16, block_n=16)
ERROR = {torch.float32: 4e-6, torch.float16: 2e-3}


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def visible(batch, sq, sk, *, causal=None, window=(None, None), lengths=None, nodes=None):
    """`[B, 1, Sq, Sk]` bool; `nodes` `[B, Sq, Sq]` says which of the last Sq keys a query sees."""
    n = torch.full((batch,), sk) if lengths is None else lengths.long()
    i, j = torch.arange(sq)[:, None], torch.arange(sk)
    see = (j < n[:, None, None]).expand(batch, sq, sk).clone()
    shift = (n - sq if causal == "bottom-right" else torch.zeros_like(n))[:, None, None]
    left, right = window
    if causal is not None:
        right = 0
    if right is not None:
        see &= j <= i + shift + right
    if left is not None:
        see &= j >= i + shift - left
    if nodes is not None:
        for b in range(batch):
            for node in range(sq):
                key = int(n[b]) - sq + node
                if key >= 0:
                    see[b, :, key] &= nodes[b, :, node]
    return see[:, None]


def exact(q, k, v, see, scale=None):
    """O and LSE in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // max(k.shape[1], 1), 1) for x in (k, v))
    s = (q @ k.transpose(2, 3) * (1 / math.sqrt(q.shape[3]) if scale is None else scale)).masked_fill(~see, -INF)
    lse = torch.logsumexp(s, -1)
    return torch.exp(s - lse.nan_to_num(neginf=0.0)[..., None]).masked_fill(~see, 0.0) @ v, lse


def agree(got, wanted, dtype):
    for x, y in zip(got, wanted, strict=True):
        assert x.shape == y.shape
        assert torch.equal(x == -INF, y == -INF)
        x, y = x[y != -INF].double(), y[y != -INF]
        if y.numel():
            assert float((x - y).abs().max()) <= ERROR[dtype] * max(1.0, float(y.abs().max()))


def same(got, wanted):
    for x, y in zip(got, wanted, strict=True):
        assert torch.equal(x, y)


def close(got, wanted, error=2e-6):
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=error, atol=error)


def run(q, k, v, **options):
    return decode(q, k, v, return_lse=True, **options)


def paged(k, v, page_size, lengths=None, spare=3, garbage=None, seed=0):
    """The keys in shuffled pages, NaN wherever no key of a sequence lies; `garbage` in the entries that no key needs."""
    batch, heads, sk, _ = k.shape
    per_sequence = -(-sk // page_size)
    numbers = torch.randperm(
        batch * per_sequence + spare, generator=torch.Generator("cpu").manual_seed(seed), device="cpu"
    )
    table = numbers[: batch * per_sequence].reshape(batch, per_sequence).to(k.device, torch.int32)
    pages = [
        torch.full((len(numbers), page_size, heads, x.shape[3]), math.nan, dtype=x.dtype, device=x.device)
        for x in (k, v)
    ]
    for b in range(batch):
        n = sk if lengths is None else int(lengths[b])
        for j in range(n):
            for page, x in zip(pages, (k, v), strict=True):
                page[int(table[b, j // page_size]), j % page_size] = x[b, :, j]
        if garbage is not None:
            table[b, -(-n // page_size) :] = garbage
    return *pages, table
