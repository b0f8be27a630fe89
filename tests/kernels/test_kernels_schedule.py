"""The tile schedule against the mask, pair by pair."""

import pytest
import torch
import triton
import triton.language as tl

from flashverify_kernels.device.mask import CAUSAL, NONE, TREE
from flashverify_kernels.device.schedule import KEYS, QUERIES, tile_schedule


@triton.jit
def schedule_kernel(
    out_ptr,
    sq,
    k_end,
    diag,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASK: tl.constexpr,
    AXIS: tl.constexpr,
):
    tile = tl.program_id(0)
    start = tile * (BLOCK_M if AXIS == 0 else BLOCK_N)
    begin, full_begin, full_end, end = tile_schedule(start, sq, k_end, diag, BLOCK_M, BLOCK_N, MASK, AXIS)
    tl.store(out_ptr + tile * 4, begin)
    tl.store(out_ptr + tile * 4 + 1, full_begin)
    tl.store(out_ptr + tile * 4 + 2, full_end)
    tl.store(out_ptr + tile * 4 + 3, end)


def schedule(tiles, *args):
    out = torch.zeros(tiles, 4, dtype=torch.int32)
    schedule_kernel[(tiles,)](out, *args)
    return out.tolist()


def pairs(sq, k_end, diag, mask):
    """(may see, surely sees): for a tree, whatever its bits are."""
    i, j = torch.arange(sq, device="cpu")[:, None], torch.arange(k_end, device="cpu")[None]
    if mask == NONE.value:
        return (j < k_end).expand(sq, -1), (j < k_end).expand(sq, -1)
    may = j <= i + diag
    return may, may if mask == CAUSAL.value else may & (j < diag)


def check(limits, fixed, step, length, may, sure, both_inside):
    """Skipped tiles hold no pair, full ones only sure pairs, masked ones at least one pair that is not sure."""
    begin, full_begin, full_end, end = limits
    assert begin % step == 0 or begin >= end
    visited = set(range(begin, full_begin, step)) | set(range(full_end, end, step))
    full = set(range(full_begin, full_end, step))
    assert not visited & full
    for start in range(0, length, step):
        tile = slice(start, start + step)
        whole = start + step <= length and both_inside
        if start in full:
            assert whole
            assert bool(sure[fixed, tile].all())
        elif start in visited:
            assert bool(may[fixed, tile].any())
            assert not whole or not bool(sure[fixed, tile].all())
        else:
            assert not bool(may[fixed, tile].any())


@pytest.mark.parametrize("block", [(16, 32), (32, 16), (16, 16)])
@pytest.mark.parametrize(
    ("mask", "diag"), [(NONE, 0), (CAUSAL, 0), (CAUSAL, 15), (CAUSAL, -20), (CAUSAL, -90), (TREE, 0), (TREE, 33)]
)
@pytest.mark.parametrize(("sq", "k_end"), [(1, 1), (40, 64), (64, 33), (70, 0)])
def test_tiles_are_skipped_masked_or_full_exactly_where_they_should_be(block, mask, diag, sq, k_end):
    block_m, block_n = block
    may, sure = pairs(sq, k_end, diag, mask.value)
    arguments = (sq, k_end, diag, block_m, block_n, mask.value)
    for n, limits in enumerate(schedule(-(-sq // block_m), *arguments, KEYS.value)):
        check(limits, slice(n * block_m, (n + 1) * block_m), block_n, k_end, may, sure, True)
    for n, limits in enumerate(schedule(-(-max(k_end, 1) // block_n), *arguments, QUERIES.value)):
        inside = (n + 1) * block_n <= k_end
        check(limits, slice(n * block_n, (n + 1) * block_n), block_m, sq, may.T, sure.T, inside)
