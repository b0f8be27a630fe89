"""What the forward and dQ fetch: queries, and the tiles of keys and values."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from flashverify_kernels.device.hopper.barriers import fetch, following
from flashverify_kernels.device.hopper.ragged import place
from flashverify_kernels.device.hopper.told import tell
from flashverify_kernels.device.hopper.walk import position
from flashverify_kernels.device.hopper.walks_of_rows import (
    GROUPS,
    ROWS,
    share,
    tile_at,
    tiles_of_program,
    walk_of_share,
    walk_of_tile,
)


@gluon.jit
def fetch_queries_and_keys(
    of_tiles, tiles_of, full, empty, sizes, blocks, only, UPPER: gl.constexpr, PAIRED: gl.constexpr
):
    """Fetch the queries of each tile of this program, and the tiles of keys and values, as slots become empty."""
    q_tiles, k_tiles, v_tiles = of_tiles
    q_s, k_s, v_s, words = tiles_of
    q_full, k_full, v_full = full
    q_empty, k_empty, v_empty = empty
    _batch, heads, group, sq, sk, _low, _high = sizes
    STAGES: gl.constexpr = k_s.shape[0]
    BLOCK_N: gl.constexpr = k_s.shape[-2]
    count, paired = share(sizes, blocks, only, PAIRED)
    slot = 0
    phase = 1
    q_slot = 0
    q_phase = 1
    for n in range(count):
        bh, m0, first, stop, table, end = walk_of_share(n, paired, sizes, blocks, only, BLOCK_N, UPPER, PAIRED)
        b, h = bh // heads, bh % heads
        hk = h // group
        for t in range(first, stop):
            n0 = position(t, table, end, sk, blocks, blocks[4], BLOCK_N)
            mbarrier.wait(k_empty.index(slot), phase)
            fetch(k_tiles, place(only[0], b, hk, n0, only[4], sk), k_s.index(slot), k_full.index(slot))
            if t == first:
                if blocks[0] is not None:
                    for c in gl.static_range(GROUPS):
                        mbarrier.wait(q_empty.index(q_slot * GROUPS + c), q_phase)
                    tail = position(stop - 1, table, end, sk, blocks, blocks[4], BLOCK_N)
                    tell(words.index(q_slot), bh, m0, first, stop, end, tail)
                for c in gl.static_range(GROUPS):
                    own = q_slot * GROUPS + c
                    mbarrier.wait(q_empty.index(own), q_phase)
                    fetch(q_tiles, place(only[0], b, h, m0 + c * ROWS, only[3], sq), q_s.index(own), q_full.index(own))
            mbarrier.wait(v_empty.index(slot), phase)
            fetch(v_tiles, place(only[0], b, hk, n0, only[4], sk), v_s.index(slot), v_full.index(slot))
            slot, phase = following(slot, phase, STAGES)
        q_slot, q_phase = following(q_slot, q_phase, q_s.shape[0] // GROUPS)


@gluon.jit
def fetch_rows_and_keys(
    of_tiles, tiles_of, full, empty, sizes, blocks, sequences, UPPER: gl.constexpr, PAIRED: gl.constexpr
):
    """Fetch Q and dO of each tile of this program, and the tiles of keys and values, as slots become empty."""
    q_tiles, k_tiles, v_tiles, do_tiles = of_tiles
    q_s, k_s, v_s, do_s = tiles_of
    q_full, k_full, v_full, do_full = full
    q_empty, k_empty, v_empty = empty
    batch, heads, group, _, _, low, high = sizes
    K_STAGES: gl.constexpr = k_s.shape[0]
    V_STAGES: gl.constexpr = v_s.shape[0]
    BLOCK_N: gl.constexpr = k_s.shape[-2]
    count, paired = tiles_of_program(sizes, blocks, sequences, PAIRED)
    k_slot = 0
    k_phase = 1
    v_slot = 0
    v_phase = 1
    for n in range(count):
        b, h, m0, q0, sq, k0, sk, shift = tile_at(n, paired, sizes, blocks, sequences, UPPER, PAIRED)
        own_sizes = (batch, heads, group, sq, sk, low, high + shift)
        if low is not None:
            own_sizes = (batch, heads, group, sq, sk, low + shift, high + shift)
        hk = h // group
        first, stop, table, end = walk_of_tile(b, h, m0, own_sizes, blocks, BLOCK_N, UPPER)
        for t in range(first, stop):
            n0 = position(t, table, end, sk, blocks, blocks[4], BLOCK_N)
            mbarrier.wait(k_empty.index(k_slot), k_phase)
            fetch(k_tiles, place(sequences[0], b, hk, n0, k0, sk), k_s.index(k_slot), k_full.index(k_slot))
            if t == first:
                for c in gl.static_range(GROUPS):
                    own = n % 2 * GROUPS + c
                    mbarrier.wait(q_empty.index(own), (n + 1) // 2 % 2 ^ 1)
                    fetch(q_tiles, place(sequences[0], b, h, m0 + c * ROWS, q0, sq), q_s.index(own), q_full.index(own))
                    fetch(
                        do_tiles, place(sequences[0], b, h, m0 + c * ROWS, q0, sq), do_s.index(own), do_full.index(own)
                    )
            mbarrier.wait(v_empty.index(v_slot), v_phase)
            fetch(v_tiles, place(sequences[0], b, hk, n0, k0, sk), v_s.index(v_slot), v_full.index(v_slot))
            k_slot, k_phase = following(k_slot, k_phase, K_STAGES)
            v_slot, v_phase = following(v_slot, v_phase, V_STAGES)
