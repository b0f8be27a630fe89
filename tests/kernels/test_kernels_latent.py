"""Attention over a latent cache against its definition in float64, and what it refuses."""

import math

import pytest
import torch

from flashverify_kernels import latent_attention
from flashverify_kernels.latent_config import latent_config
from tests.kernels.decode_reference import INF, agree, exact, ints, visible


def inputs(batch=2, heads=4, sq=3, sk=20, d=24, dtype=torch.float32, seed=0):
    make = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, heads, sq, d, generator=make).to(dtype)
    return q, torch.randn(batch, 1, sk, d, generator=make).to(dtype)


@pytest.mark.parametrize("n_splits", [None, 3])
@pytest.mark.parametrize(
    ("d", "dv", "dtype"),
    [(24, 16, torch.float32), (40, 32, torch.float16), (16, 16, torch.float32), (40, 24, torch.float32)],
)
def test_it_agrees_with_the_definition(d, dv, dtype, n_splits):
    q, kv = inputs(sk=70, d=d, dtype=dtype)

    got = latent_attention(q, kv, dim_v=dv, n_splits=n_splits, return_lse=True)

    assert got[0].shape == (2, 4, 3, dv)
    agree(got, exact(q, kv, kv[..., :dv], visible(2, 3, 70)), dtype)


def test_masks_and_lengths():
    q, kv = inputs(sk=30)
    lengths = ints(30, 7)

    got = latent_attention(
        q, kv, dim_v=16, causal="bottom-right", window=(5, None), key_lengths=lengths, n_splits=2, return_lse=True
    )

    agree(
        got,
        exact(q, kv, kv[..., :16], visible(2, 3, 30, causal="bottom-right", window=(5, None), lengths=lengths)),
        torch.float32,
    )


@pytest.mark.parametrize("page_size", [5, 64])
def test_pages_give_the_bits_of_contiguous_keys(page_size):
    q, kv = inputs(sk=64)
    count = -(-64 // page_size)
    table = torch.randperm(2 * count, generator=torch.Generator().manual_seed(1)).int().view(2, count)
    pool = torch.full((2 * count, page_size, 1, 24), math.nan)
    for b in range(2):
        for n in range(count):
            part = kv[b, :, n * page_size : (n + 1) * page_size].transpose(0, 1)
            pool[table[b, n], : len(part)] = part
    lengths = ints(64, 33)

    paged = latent_attention(q, pool, dim_v=16, block_table=table, key_lengths=lengths, n_splits=1, return_lse=True)
    whole = latent_attention(q, kv, dim_v=16, key_lengths=lengths, n_splits=1, return_lse=True)

    assert all(torch.equal(x, y) for x, y in zip(paged, whole, strict=True))


def test_a_query_without_keys_is_empty():
    q, kv = inputs()

    o, lse = latent_attention(q, kv, dim_v=16, key_lengths=ints(20, 0), return_lse=True)

    assert not o[1].any()
    assert (lse[1] == -INF).all()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"dim_v": 12}, ValueError, "dim_v: expected a multiple of 8 from 8 to 512, got 12"),
        ({"dim_v": 16.0}, TypeError, r"dim_v: expected a whole number, got 16.0 \(float\)"),
        ({"dim_v": 32}, ValueError, "q: expected a multiple of 8 from dim_v=32 to 288 channels, got 24"),
        (
            {"kv": torch.zeros(2, 1, 20, 16)},
            ValueError,
            r"kv: expected the 24 channels of q, got shape \(2, 1, 20, 16\)",
        ),
        ({"kv": torch.zeros(3, 1, 20, 24)}, ValueError, "kv: expected the 2 sequences of q"),
        ({"n_splits": 0}, ValueError, "n_splits: expected 1 to 1024, got 0"),
        *(
            ({name: None}, TypeError, rf"latent_attention\(\) got an unexpected keyword argument '{name}'")
            for name in ("tree", "config", "query_lengths", "softcap", "alibi_slopes", "bias", "sink", "relative_bias")
        ),
        ({"causal": "bottom"}, ValueError, "causal: expected one of"),
    ],
)
def test_what_is_not_accepted_is_named(changes, error, message):
    q, kv = inputs()
    given = {"q": q, "kv": kv, "dim_v": 16, **changes}

    with pytest.raises(error, match=message):
        latent_attention(**given)


def test_there_is_no_backward():
    q, kv = inputs()

    with pytest.raises(ValueError, match="q: latent_attention has no backward"):
        latent_attention(q.requires_grad_(), kv, dim_v=16)


def test_a_hopper_gpu_has_tiles_of_a_group_of_warps_where_they_fit():
    shared = {"dtype": torch.float16, "capability": (9, 0)}

    assert latent_config(dv=512, rope=64, rows=128, **shared).block_m == 64
    for small in ({"dv": 512, "rope": 64, "rows": 32}, {"dv": 512, "rope": 72, "rows": 128}):
        assert latent_config(**small, **shared) == latent_config(**small, dtype=torch.float16)
    assert latent_config(dv=512, rope=64, rows=128, dtype=torch.float16, capability=(10, 0)).block_m == 32
    assert latent_config(dv=64, rope=8, rows=128, dtype=torch.float32, capability=(9, 0)).block_m == 16
