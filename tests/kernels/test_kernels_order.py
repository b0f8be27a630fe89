"""The order of programs: each tile of each head once, and under a causal mask no long walk at the end."""

import heapq

import pytest
import torch
import triton
import triton.language as tl

from flashverify_kernels import Options, Packed
from flashverify_kernels.arguments import sequences_of
from flashverify_kernels.device.order import place_of, tile_of
from flashverify_kernels.programs import programs_of
from flashverify_kernels.validation import check_call

MULTIPROCESSORS = 132  # of an H100 and an H200


@triton.jit
def places_kernel(out_ptr, tiles, FALLING: tl.constexpr):
    head, tile = tile_of(tiles, FALLING)
    tl.store(out_ptr + 2 * tl.program_id(0), head)
    tl.store(out_ptr + 2 * tl.program_id(0) + 1, tile)


def places(heads, tiles, falling):
    """(head, tile) of each program."""
    out = torch.full((heads * tiles, 2), -1, dtype=torch.int32)
    places_kernel[(heads * tiles,)](out, tiles, falling)
    return [tuple(place) for place in out.tolist()]


@triton.jit
def packed_places_kernel(out_ptr, cu_ptr, sequences, rows, heads, BLOCK: tl.constexpr, LAST_FIRST: tl.constexpr):
    b, h, tile = place_of(cu_ptr, sequences, rows, heads, BLOCK, False, LAST_FIRST)
    tl.store(out_ptr + 3 * tl.program_id(0), b)
    tl.store(out_ptr + 3 * tl.program_id(0) + 1, h)
    tl.store(out_ptr + 3 * tl.program_id(0) + 2, tile)


def packed_places(lengths, heads, last_first, rows=None):
    """(sequence, head, tile) of each program of a launch over packed sequences in tiles of 16."""
    cu = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    options = Options(packed=Packed(cu, cu, max(lengths), max(lengths)), layout="bshd")
    shape = torch.zeros(1, sum(lengths) if rows is None else rows, heads, 8)
    call = check_call(shape, shape, shape, options)
    programs = programs_of(call, heads, max(lengths), shape.shape[1], 16)
    out = torch.full((programs, 3), -1, dtype=torch.int32)
    packed_places_kernel[(programs,)](out, cu, sequences_of(options), max(lengths), heads, 16, last_first)
    return [tuple(place) for place in out.tolist()]


def share_of_best(found, tiles):
    """How long the launch takes where each free multiprocessor takes the next program, beside the time of an even split."""
    walks = [tiles - tile for _, tile in found]
    free = [0] * MULTIPROCESSORS
    for walk in walks:
        heapq.heapreplace(free, free[0] + walk)
    return max(free) / (sum(walks) / MULTIPROCESSORS)


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize(
    ("heads", "tiles"), [(1, 1), (3, 1), (7, 5), (300, 1), (9, 32), (5, 100), (3, 127), (3, 128), (2, 300)]
)
def test_every_tile_of_every_head_has_one_program(heads, tiles, falling):
    found = places(heads, tiles, falling)

    assert sorted(found) == [(head, tile) for head in range(heads) for tile in range(tiles)]


@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize(
    ("lengths", "rows"),
    [((16,), None), ((1, 0, 47, 16, 15, 33), None), ((0, 0, 5), 40), ((17,) * 33, None), ((100, 3, 64, 200), 400)],
)
def test_every_tile_of_packed_sequences_has_one_program_and_few_have_none(lengths, rows, heads, last_first):
    found = packed_places(lengths, heads, last_first, rows)
    tiles = [-(-length // 16) for length in lengths]
    busy = [(b, h, tile) for b, h, tile in found if tile < tiles[b]]

    assert all(0 <= b < len(lengths) and 0 <= h < heads and tile >= 0 for b, h, tile in found)
    assert sorted(busy) == [(b, h, tile) for b, n in enumerate(tiles) for h in range(heads) for tile in range(n)]
    assert len(found) <= len(busy) + heads * (len(lengths) + (0 if rows is None else rows // 16))
    assert [x[:2] for x in busy] == sorted(x[:2] for x in busy)
    of_last = [tile for b, h, tile in busy if (b, h) == busy[-1][:2]]
    assert of_last == sorted(of_last, reverse=last_first)


@pytest.mark.parametrize(("heads", "tiles", "falling"), [(9, 32, False), (3, 128, True), (2, 300, True)])
def test_heads_start_one_after_the_other(heads, tiles, falling):
    assert places(heads, tiles, falling) == [(head, tile) for head in range(heads) for tile in range(tiles)]


@pytest.mark.parametrize(("heads", "tiles"), [(16, 8), (8, 32), (64, 32), (16, 64)])
def test_no_multiprocessor_waits_long_for_the_last_walk(heads, tiles):
    assert share_of_best(places(heads, tiles, True), tiles) < 1.05 or heads * tiles <= MULTIPROCESSORS


def test_one_head_after_the_other_would_end_with_long_walks():
    assert share_of_best(places(8, 32, False), 32) > 1.5
