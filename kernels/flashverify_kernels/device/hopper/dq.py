from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
)

from flashverify_kernels.device.hopper.barriers import (
    make_barriers,
    make_tiles,
    meet,
)
from flashverify_kernels.device.hopper.gradients_of_queries import gradients_of_queries
from flashverify_kernels.device.hopper.keys import fetch_rows_and_keys
from flashverify_kernels.device.hopper.walks_of_rows import (
    GROUPS,
)

_UNSPECIALISED = ["lse2_ptr", "delta_ptr", "live_ptr", "scale", "scale_log2", "batch", "heads", "group", "sq", "sk"]
_UNSPECIALISED += ["low", "high", "live_batch", "live_head", "block_rows", "block_keys"]
_UNSPECIALISED += ["cu_q_ptr", "cu_k_ptr", "packed", "halvings", "rows", "align_end"]


@gluon.jit(do_not_specialize=_UNSPECIALISED, do_not_specialize_on_alignment=_UNSPECIALISED)
def hopper_dq_kernel(
    q_tiles,
    k_tiles,
    v_tiles,
    do_tiles,
    dq_tiles,
    lse2_ptr,
    delta_ptr,
    scale,
    scale_log2,
    batch,
    heads,
    group,
    sq,
    sk,
    low,
    high,
    live_ptr,
    live_batch,
    live_head,
    block_rows,
    block_keys,
    cu_q_ptr,
    cu_k_ptr,
    packed,
    halvings,
    rows,
    align_end,
    UPPER: gl.constexpr,
    PAIRED: gl.constexpr,
    K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
):
    """Compute dQ, 128 queries after the other: any number of programs share the tiles of queries, as in `hopper_forward_kernel`.

    Args:
        q_tiles: descriptor of Q, tiles of 64 queries; arguments that are not named here are as in `hopper_forward_kernel`.
        k_tiles: descriptor of K, tiles of keys.
        v_tiles: descriptor of V, likewise.
        do_tiles: descriptor of dO, in the shape and the tiles of Q.
        dq_tiles: descriptor of dQ, likewise.
        lse2_ptr: as there.
        delta_ptr: rowsum(dO * O) - dLSE, in the shape of LSE.
        scale: of the logits.
        scale_log2: as there.
        batch: as there.
        heads: as there.
        group: as there.
        sq: as there.
        sk: as there.
        low: as there.
        high: as there.
        live_ptr: as there.
        live_batch: as there.
        live_head: as there.
        block_rows: as there.
        block_keys: as there.
        cu_q_ptr: as there.
        cu_k_ptr: as there.
        packed: as there.
        halvings: as there.
        rows: as there.
        align_end: as there.
        UPPER: as there.
        PAIRED: as there.
        K_STAGES: tiles of K that are on their way or in use; two are in use at a time.
        V_STAGES: tiles of V, of which one is.
    """
    q_s = make_tiles(q_tiles, 2 * GROUPS)
    do_s = make_tiles(do_tiles, 2 * GROUPS)
    k_s = make_tiles(k_tiles, K_STAGES)
    v_s = make_tiles(v_tiles, V_STAGES)
    q_full = make_barriers(2 * GROUPS, 1)
    do_full = make_barriers(2 * GROUPS, 1)
    q_empty = make_barriers(2 * GROUPS, 1)
    k_full = make_barriers(K_STAGES, 1)
    v_full = make_barriers(V_STAGES, 1)
    k_empty = make_barriers(K_STAGES, GROUPS)
    v_empty = make_barriers(V_STAGES, GROUPS)
    fence_async_shared()
    meet()
    tiles_of = (q_s, k_s, v_s, do_s)
    full = (q_full, k_full, v_full, do_full)
    empty = (q_empty, k_empty, v_empty)
    sizes = (batch, heads, group, sq, sk, low, high)
    blocks = (live_ptr, live_batch, live_head, block_rows, block_keys)
    sequences = (cu_q_ptr, cu_k_ptr, packed, halvings, rows, align_end)
    of_rows = (dq_tiles, lse2_ptr, delta_ptr, scale, scale_log2)
    of_tiles = (q_tiles, k_tiles, v_tiles, do_tiles)
    gl.warp_specialize(
        [
            (gradients_of_queries, (0, tiles_of, full, empty, sizes, blocks, sequences, of_rows, UPPER, PAIRED)),
            (gradients_of_queries, (1, tiles_of, full, empty, sizes, blocks, sequences, of_rows, UPPER, PAIRED)),
            (fetch_rows_and_keys, (of_tiles, tiles_of, full, empty, sizes, blocks, sequences, UPPER, PAIRED)),
        ],
        [4, 1],
        [240, 24],
    )
