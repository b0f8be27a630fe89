"""The kernel for dK and dV on Hopper GPUs, which also computes dQ and has the copy engine add it to fp32 memory.

Two groups of four warps have 64 keys each, as in `flashverify_kernels.device.hopper.dkdv`. Beyond it they write dS to shared memory, and each
computes half of the channels of the tile of dQ over the keys of both. A warp of its own adds the tiles to memory: in any order, or each
tile after that of the keys before, by a counter for each tile of queries.
"""

import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from flashverify_kernels.device.hopper.barriers import fetch, following, make_barriers, make_tiles, meet
from flashverify_kernels.device.order import tile_of
from single_pass.compute import compute

ROWS = gl.constexpr(64)
KEYS = gl.constexpr(128)
_UNSPECIALISED = ["lse2_ptr", "delta_ptr", "added_ptr", "scale", "scale_log2", "heads", "group", "sq", "sk"]


@builtin
def reduce_add(tiles, place, buffer, _semantic=None):
    """Have the copy engine add a tile in shared memory to memory."""
    place = _semantic._convert_to_ir_values(place, require_i64=False)
    _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, tiles.handle, place, buffer.handle)


@gluon.jit(do_not_specialize=_UNSPECIALISED, do_not_specialize_on_alignment=_UNSPECIALISED)
def single_pass_kernel(
    q_tiles,
    k_tiles,
    v_tiles,
    do_tiles,
    dk_tiles,
    dv_tiles,
    dq_tiles,
    lse2_ptr,
    delta_ptr,
    added_ptr,
    scale,
    scale_log2,
    heads,
    group,
    sq,
    sk,
    CAUSAL: gl.constexpr,
    ORDERED: gl.constexpr,
    STAGES: gl.constexpr,
    PRODUCT: gl.constexpr,
    ADDED: gl.constexpr,
):
    """Compute dK and dV of 128 keys, and what they add to dQ / scale.

    Args:
        q_tiles: as in `hopper_dkdv_kernel`, tiles of 64 queries.
        k_tiles: likewise.
        v_tiles: likewise.
        do_tiles: likewise.
        dk_tiles: likewise.
        dv_tiles: likewise.
        dq_tiles: descriptor of dQ / scale, `[B, heads, sq, D]` fp32, zeros before; tiles of 64 queries and half of the channels.
        lse2_ptr: as in `hopper_dkdv_kernel`, 16-byte aligned.
        delta_ptr: likewise.
        added_ptr: how many tiles of keys were added to each tile of queries, `[B, heads, tiles]` int32, zeros before.
        scale: of the logits.
        scale_log2: factor of a dot product, scale * log2(e).
        heads: query heads.
        group: query heads per kv head.
        sq: queries, a multiple of 64.
        sk: keys, a multiple of 128.
        CAUSAL: whether query i sees the keys up to i alone.
        ORDERED: whether tiles of keys are added in one order, so that dQ repeats bit for bit.
        STAGES: tiles of Q and of dO that are on their way or in use.
        PRODUCT: whether dQ is computed.
        ADDED: whether it is added to memory.
    """
    BLOCK_M: gl.constexpr = q_tiles.block_type.shape[2]
    per_head = sk // KEYS
    bh, tile = tile_of(per_head, CAUSAL and not ORDERED)
    if CAUSAL and ORDERED:  # a tile waits for those that started before it alone
        tile = per_head - 1 - tile
    n0 = tile * KEYS
    b = bh // (heads // group)
    hk = bh % (heads // group)
    count = sq // BLOCK_M
    begin = 0
    if CAUSAL:
        begin = gl.minimum(n0, sq) // BLOCK_M

    k_s = make_tiles(k_tiles, 2)
    v_s = make_tiles(v_tiles, 2)
    q_s = make_tiles(q_tiles, STAGES)
    do_s = make_tiles(do_tiles, STAGES)
    DS: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    ds_s = gl.allocate_shared_memory(q_tiles.dtype, [4, 1, 1, ROWS, BLOCK_M], DS)
    dq_s = make_tiles(dq_tiles, 2)
    k_full = make_barriers(2, 1)
    v_full = make_barriers(2, 1)
    q_full = make_barriers(STAGES, 1)
    do_full = make_barriers(STAGES, 1)
    q_empty = make_barriers(STAGES, 2)
    do_empty = make_barriers(STAGES, 2)
    ds_full = make_barriers(2, 2)
    dq_full = make_barriers(1, 2)
    dq_empty = make_barriers(1, 1)
    fence_async_shared()
    meet()
    tiles_of = (q_s, k_s, v_s, do_s, ds_s, dq_s)
    full = (q_full, k_full, v_full, do_full, ds_full, dq_full)
    empty = (q_empty, do_empty, dq_empty)
    where = (b, hk, n0, begin, count, group)
    row = (b.to(gl.int64) * heads + hk * group) * sq
    walk = (dk_tiles, dv_tiles, lse2_ptr + row, delta_ptr + row, scale, scale_log2, sq)
    counters = added_ptr + (b.to(gl.int64) * heads + hk * group) * count
    gl.warp_specialize(
        [
            (compute, (0, tiles_of, full, empty, where, walk, CAUSAL, PRODUCT, ADDED)),
            (compute, (1, tiles_of, full, empty, where, walk, CAUSAL, PRODUCT, ADDED)),
            (_fetch, (q_tiles, k_tiles, v_tiles, do_tiles, tiles_of, full, empty, where)),
            (_add, (dq_tiles, tiles_of, full, empty, where, counters, per_head, CAUSAL, ORDERED, ADDED)),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )


@gluon.jit
def _fetch(q_tiles, k_tiles, v_tiles, do_tiles, tiles_of, full, empty, where):
    """Fetch the keys and values, then the tiles of Q and dO as slots become empty."""
    q_s, k_s, v_s, do_s, _, _ = tiles_of
    q_full, k_full, v_full, do_full, _, _ = full
    q_empty, do_empty, _ = empty
    b, hk, n0, begin, count, group = where
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[3]
    for c in gl.static_range(2):
        fetch(k_tiles, [b, hk, n0 + c * ROWS, 0], k_s.index(c), k_full.index(c))
        fetch(v_tiles, [b, hk, n0 + c * ROWS, 0], v_s.index(c), v_full.index(c))
    slot = 0
    phase = 1
    for member in range(group):
        h = hk * group + member
        for t in range(begin, count):
            mbarrier.wait(q_empty.index(slot), phase)
            fetch(q_tiles, [b, h, t * BLOCK_M, 0], q_s.index(slot), q_full.index(slot))
            mbarrier.wait(do_empty.index(slot), phase)
            fetch(do_tiles, [b, h, t * BLOCK_M, 0], do_s.index(slot), do_full.index(slot))
            slot, phase = following(slot, phase, STAGES)


@gluon.jit
def _add(
    dq_tiles,
    tiles_of,
    full,
    empty,
    where,
    counters,
    per_head,
    CAUSAL: gl.constexpr,
    ORDERED: gl.constexpr,
    ADDED: gl.constexpr,
):
    """Add the tiles of dQ to memory as they are there; ordered ones from the last keys that a tile of queries sees to the first, if causal."""
    q_s, _, _, _, _, dq_s = tiles_of
    dq_full = full[5]
    dq_empty = empty[2]
    b, hk, n0, begin, count, group = where
    BLOCK_M: gl.constexpr = q_s.shape[3]
    phase = 0
    if ADDED:
        for member in range(group):
            h = hk * group + member
            for t in range(begin, count):
                mbarrier.wait(dq_full.index(0), phase)
                if ORDERED:
                    before = n0 // KEYS
                    if CAUSAL:
                        before = gl.minimum((t * BLOCK_M + BLOCK_M - 1) // KEYS, per_head - 1) - before
                    counter = counters + member.to(gl.int64) * count + t  # type: ignore[attr-defined]  # a tensor to the compiler
                    seen = gl.atomic_add(counter, 0, sem="acquire")
                    while seen != before:
                        seen = gl.atomic_add(counter, 0, sem="acquire")
                for c in gl.static_range(2):
                    reduce_add(dq_tiles, [b, h, t * BLOCK_M, c * dq_s.shape[4]], dq_s.index(c))
                tma.store_wait(0)
                mbarrier.arrive(dq_empty.index(0), count=1)
                if ORDERED:
                    in_memory()
                    gl.atomic_add(counter, 1, sem="release")
                phase ^= 1
        in_memory()


@gluon.jit
def in_memory():
    """Wait until all that this warp asked the copy engine to add is in memory."""
    none = gl.zeros([32], gl.int32, gl.BlockedLayout([1], [32], [1], [0]))
    gl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r,r", [none], dtype=gl.int32, is_pure=False, pack=1
    )


@triton.jit
def rounded_kernel(sum_ptr, dq_ptr, scale, BLOCK: tl.constexpr):
    """DQ, rounded once, of the sums."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dq_ptr + at, (tl.load(sum_ptr + at) * scale).to(dq_ptr.dtype.element_ty))
