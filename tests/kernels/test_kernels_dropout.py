import itertools
import math

import pytest
import torch
import triton.language as tl

from flashverify.interpreter import session
from flashverify_kernels.device.arguments import DropoutDraws
from flashverify_kernels.device.dropout import keep_tile, keep_tile_transposed
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.runtime import INTERPRETED

BLOCK = 16


@kernel
def mask_kernel(
    out_ptr,
    draws: DropoutDraws,
    heads: tl.int32,
    rows: tl.int32,
    keys: tl.int32,
    TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    bh, m0, n0 = tl.program_id(0), tl.program_id(1) * BLOCK_M, tl.program_id(2) * BLOCK_N
    i, j = m0 + tl.arange(0, BLOCK_M), n0 + tl.arange(0, BLOCK_N)
    stream = bh // heads * heads + bh % heads
    if TRANSPOSED:
        keep = tl.trans(keep_tile_transposed(i, n0, stream, draws, BLOCK_N))
    else:
        keep = keep_tile(i, n0, stream, draws, BLOCK_N)
    at = (bh.to(tl.int64) * rows + i[:, None]) * keys + j[None, :]
    tl.store(out_ptr + at, keep.to(tl.int8), mask=(i[:, None] < rows) & (j[None, :] < keys))


def mask(rows, keys, p, *, seed=0, offset=0, batch=1, heads=1, transposed=False, block=(BLOCK, BLOCK), threshold=None):
    out = torch.full((batch * heads, rows, keys), 7, dtype=torch.int8)
    mask_kernel[batch * heads, -(-rows // block[0]), -(-keys // block[1])](
        out,
        draws=DropoutDraws(None, None, seed, offset, math.floor(p * 2**32) if threshold is None else threshold),
        heads=heads,
        rows=rows,
        keys=keys,
        TRANSPOSED=transposed,
        BLOCK_M=block[0],
        BLOCK_N=block[1],
    )
    return out.cpu()


def philox(counter, key):
    """Philox4x32-10 in whole numbers, from the paper's definition."""
    c, k, low = list(counter), list(key), 2**32 - 1
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & low, a >> 32 ^ c[3] ^ k[1], a & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


# Random123's kat_vectors.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_definition_gives_the_published_vectors(counter, key, words):
    assert philox(counter, key) == list(words)


@kernel
def word_kernel(out_ptr, c_ptr, seed: tl.uint64, BLOCK: tl.constexpr):
    words = tl.philox(seed, tl.load(c_ptr), tl.load(c_ptr + 1), tl.load(c_ptr + 2), tl.load(c_ptr + 3))
    for n in tl.static_range(4):
        tl.store(out_ptr + n, words[n].to(tl.int64))


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_tritons_philox_gives_the_published_vectors(counter, key, words):
    out = torch.zeros(4, dtype=torch.int64)
    counter = torch.tensor([c - 2**32 if c >= 2**31 else c for c in counter], dtype=torch.int32)
    word_kernel[1,](out, counter, seed=key[1] << 32 | key[0], BLOCK=1)
    assert out.tolist() == list(words)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("block", [(16, 16), (16, 64), (32, 16)])
@pytest.mark.parametrize(
    ("seed", "offset"), [(0, 0), (1, 2**32 - 1), (2**32 - 1, 2**31), (2**63 - 1, 5), (2**64 - 1, 3)]
)
def test_every_pair_takes_its_word_whatever_the_tiles(seed, offset, block, transposed):
    batch, heads, rows, keys, threshold = 2, 3, 21, 35, 0x60000001
    got = mask(rows, keys, None, seed=seed, offset=offset, batch=batch, heads=heads, transposed=transposed,
               block=block, threshold=threshold)  # fmt: skip
    key = (seed & (2**32 - 1), seed >> 32)
    for bh, i in itertools.product(range(batch * heads), range(0, rows, 5)):
        words = [w for quad in range(-(-keys // 4)) for w in philox((quad, i, bh, offset), key)]
        assert got[bh, i].tolist() == [int(w >= threshold) for w in words[:keys]]


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.skipif(not INTERPRETED, reason="sessions interpret")
@pytest.mark.usefixtures("opens_sessions")
def test_a_session_keeps_the_same_pairs_in_lockstep(lockstep):
    options = {"seed": 0xFEDCBA9876543210, "offset": 0xFFFFFFF0, "batch": 2, "heads": 2}
    plain = mask(40, 40, 0.5, **options)
    with session(lockstep=lockstep) as opened:
        assert torch.equal(mask(40, 40, 0.5, **options), plain)
        assert not opened.fallbacks


def test_the_threshold_is_the_first_word_kept():
    word = philox((0, 0, 0, 0), (0, 0))[0]
    kept = [int(mask(1, 1, None, threshold=word + d)[0, 0, 0]) for d in (-1, 0, 1)]
    assert kept == [1, 1, 0]


# Six standard deviations of a binomial: one false alarm in 5 * 10^8 draws, and the seeds are fixed.
@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_share_kept_is_right_in_all_rows_and_columns_together(p):
    rows = keys = 512
    keep = mask(rows, keys, p, seed=17, block=(64, 64))[0].double()
    deviation = math.sqrt(p * (1 - p))
    assert abs(float(keep.mean()) - (1 - p)) < 6 * deviation / math.sqrt(rows * keys)
    for axis in (0, 1):
        assert float((keep.mean(axis) - (1 - p)).abs().max()) < 6 * deviation / math.sqrt(rows)


def test_rows_columns_words_heads_batches_and_seeds_are_independent():
    rows = keys = 256
    one = mask(rows, keys, 0.5, seed=3, heads=2, batch=2, block=(64, 64)).double() * 2 - 1
    others = [mask(rows, keys, 0.5, seed=s, offset=o, block=(64, 64))[0].double() * 2 - 1
              for s, o in ((4, 0), (3, 1), (3 + 2**32, 0))]  # fmt: skip
    first = one[0]
    limit = 6 / math.sqrt(rows * keys)
    pairs = [(first, x) for x in (*one[1:], *others)]
    pairs += [(first[s:], first[:-s]) for s in (1, 2, 16)]
    pairs += [(first[:, s:], first[:, :-s]) for s in (1, 2, 3, 4, 8)]
    for x, y in pairs:
        assert abs(float((x * y).mean())) < 1.1 * limit
    # between any two rows, and any two columns, of the whole mask
    for x in (first, first.T):
        correlation = x @ x.T / x.shape[1]
        correlation.fill_diagonal_(0)
        assert float(correlation.abs().max()) < 6.5 / math.sqrt(x.shape[1])
