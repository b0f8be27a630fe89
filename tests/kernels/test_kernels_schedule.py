"""The tile schedule against the mask, pair by pair."""

import pytest
import torch
import triton
import triton.language as tl

from flashverify_kernels.device.arguments import Band
from flashverify_kernels.device.mask import BITS, LOWER, PREFIX, UPPER, visible
from flashverify_kernels.device.schedule import FULL, KEYS, LEADING, QUERIES, tile_schedule
from tests.fast_tier import fast_one_in

U, L, B, P = UPPER.value, LOWER.value, BITS.value, UPPER.value | PREFIX.value


@triton.jit
def schedule_kernel(
    out_ptr,
    sq,
    k_end,
    low,
    high,
    prefix,
    bits_start,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASK: tl.constexpr,
    AXIS: tl.constexpr,
):
    tile = tl.program_id(0)
    start = tile * (BLOCK_M if AXIS == 0 else BLOCK_N)
    band = Band(low, high, prefix)
    limits = tile_schedule(start, sq, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, AXIS)
    for n in tl.static_range(4):
        tl.store(out_ptr + tile * 4 + n, limits[n])


@triton.jit
def visible_kernel(out_ptr, sq, k_end, low, high, prefix, MASK: tl.constexpr, SIZE: tl.constexpr):
    i, j = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    tl.store(out_ptr + i * SIZE + j, visible(i, j, sq, k_end, Band(low, high, prefix), None, 0, MASK))


def schedule(tiles, *args):
    out = torch.zeros(tiles, 4, dtype=torch.int32)
    schedule_kernel[(tiles,)](out, *args)
    return out.tolist()


def pairs(sq, k_end, low, high, prefix, bits_start, mask):
    """(may see, surely sees), whatever the bits are."""
    i, j = torch.arange(sq, device="cpu")[:, None], torch.arange(k_end, device="cpu")[None]
    may = (j < k_end).expand(sq, -1)
    if mask & U:
        may = may & ((j <= i + high) | (j < (prefix if mask & PREFIX.value else 0)))
    if mask & L:
        may = may & (j >= i + low)
    return may, may & (j < bits_start) if mask & B else may


def check(limits, fixed, step, length, may, sure, cut):
    """Skipped tiles hold no pair, full ones only sure pairs, masked ones at least one pair, not all of them sure; `cut`: a tile past the end is masked too."""
    begin, full_begin, full_end, end = limits
    assert begin % step == 0 or begin >= end
    visited = set(range(begin, full_begin, step)) | set(range(full_end, end, step))
    full = set(range(full_begin, full_end, step))
    assert not visited & full
    for start in range(0, length, step):
        tile = slice(start, start + step)
        whole = start + step <= length or not cut
        if start in full:
            assert whole
            assert bool(sure[fixed, tile].all())
        elif start in visited:
            assert bool(may[fixed, tile].any())
            assert not whole or not bool(sure[fixed, tile].all())
        else:
            assert not bool(may[fixed, tile].any())
    return begin < full_begin


BANDS = [
    (0, 0, 0, 0, 0),
    *((U, 0, high, 0, 0) for high in (0, 15, -20, -90)),
    *((L, low, 0, 0, 0) for low in (0, -15, 20, 90)),
    *(
        (U | L, low, high, 0, 0)
        for low, high in ((0, 0), (-7, 12), (-40, -3), (20, 37), (-50, 60), (-90, -80), (90, 95))
    ),
    (B, 0, 0, 0, 0),
    (B | L, -9, 0, 0, 0),
    (B | U, 0, 0, 0, 0),
    (B | U, 0, 33, 0, 33),
    *((P, 0, high, prefix, 0) for high in (0, 15, -20, -90) for prefix in (0, 1, 16, 33, 64, 100)),
    *((P | L, low, high, 40, 0) for low, high in ((0, 0), (-15, 0), (-50, 5), (-40, -20), (-100, -90))),
    (P | L, -7, 0, 64, 0),
    (P | B, 0, 0, 40, 0),
    (P | B | L, -9, 0, 40, 0),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("block", fast_one_in(3, [(16, 32), (32, 16), (16, 16)], ids=str, kept=2))
@pytest.mark.parametrize(("mask", "low", "high", "prefix", "bits_start"), BANDS)
@pytest.mark.parametrize(("sq", "k_end"), [(1, 1), (40, 64), (64, 33), (100, 90), (70, 0), (0, 70)])
def test_tiles_are_skipped_masked_or_full_exactly_where_they_should_be(
    block, mask, low, high, prefix, bits_start, sq, k_end
):
    block_m, block_n = block
    prefix = min(prefix, k_end)
    may, sure = pairs(sq, k_end, low, high, prefix, bits_start, mask)
    arguments = (sq, k_end, low, high, prefix, bits_start, block_m, block_n, mask)
    leading = False
    for n, limits in enumerate(schedule(-(-max(sq, 1) // block_m), *arguments, KEYS.value)):
        leading |= check(limits, slice(n * block_m, (n + 1) * block_m), block_n, k_end, may, sure, True)
    assert not leading or mask & (L | B) == L
    leading = False
    for n, limits in enumerate(schedule(-(-max(k_end, 1) // block_n), *arguments, QUERIES.value)):
        leading |= check(limits, slice(n * block_n, (n + 1) * block_n), block_m, sq, may.T, sure.T, False)
        assert mask & (L | B) or limits[2] >= limits[3]  # no TRAILING
    assert not leading or mask & (U | B) == U


@pytest.mark.parametrize(("mask", "low", "high", "prefix"), [x[:4] for x in BANDS if not x[0] & B])
@pytest.mark.parametrize(("sq", "k_end"), [(20, 30), (32, 32), (32, 0)])
def test_the_predicate_is_the_band_within_the_sequence(mask, low, high, prefix, sq, k_end):
    out = torch.zeros(32, 32, dtype=torch.bool)
    prefix = min(prefix, k_end)
    visible_kernel[(1,)](out, sq, k_end, low, high, prefix, mask, 32)
    expected = torch.zeros(32, 32, dtype=torch.bool)
    expected[:sq, :k_end] = pairs(sq, k_end, low, high, prefix, 0, mask)[0]
    assert torch.equal(out, expected)


def test_segments_follow_each_other():
    assert (LEADING.value, FULL.value) == (0, 1)
