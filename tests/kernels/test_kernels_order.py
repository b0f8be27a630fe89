"""The order of programs: each tile of each head once, and under a causal mask no long walk at the end."""

import heapq

import pytest
import torch
import triton
import triton.language as tl

from flashverify_kernels.device.order import tile_of

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


@pytest.mark.parametrize(("heads", "tiles", "falling"), [(9, 32, False), (3, 128, True), (2, 300, True)])
def test_heads_start_one_after_the_other(heads, tiles, falling):
    assert places(heads, tiles, falling) == [(head, tile) for head in range(heads) for tile in range(tiles)]


@pytest.mark.parametrize(("heads", "tiles"), [(16, 8), (8, 32), (64, 32), (16, 64)])
def test_no_multiprocessor_waits_long_for_the_last_walk(heads, tiles):
    assert share_of_best(places(heads, tiles, True), tiles) < 1.05 or heads * tiles <= MULTIPROCESSORS


def test_one_head_after_the_other_would_end_with_long_walks():
    assert share_of_best(places(8, 32, False), 32) > 1.5
