import triton.language as tl

from flashverify_kernels.device.address import declared
from flashverify_kernels.device.arguments import View
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.pages import load_rows, store_rows
from flashverify_kernels.device.selection import (
    SelectedBlocks,
    SelectedSizes,
    head_ptr,
    list_number,
    named_keys,
    naming_rows,
    row_offsets,
    seen_pairs,
    tile_of_list,
)
from flashverify_kernels.device.softmax import score_gradient, weights


@kernel
def selected_dq_kernel(
    q_view: View,
    k_view: View,
    v_view: View,
    o_view: View,
    do_view: View,
    dq_view: View,
    lse_ptr,
    dlse_ptr,
    delta_ptr,
    k_lengths_ptr,
    scale,
    scale_log2,
    selected: SelectedBlocks,
    sizes: SelectedSizes,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_D: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Compute delta = rowsum(dO * O) - dLSE, `[B, heads, sq]` fp32, and dQ = scale * dS K, by the programs of the forward."""
    b, hk, n, i, h, inside = tile_of_list(tl.program_id(0), selected, sizes, BLOCK_M)
    k_end = declared(k_lengths_ptr, b, sizes.sk)
    shift = sizes.align_end * (k_end - sizes.sq)
    number = list_number(selected, b, hk, n, tl.cdiv(sizes.sq, selected.rows))
    list_ptr = selected.lists + number * selected.entries
    count = tl.load(selected.counts + number)
    q = load_rows(q_view.ptr, row_offsets(q_view, b, h, i), inside, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
    o = load_rows(o_view.ptr, row_offsets(o_view, b, h, i), inside, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    do = load_rows(do_view.ptr, row_offsets(do_view, b, h, i), inside, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    row = (b.to(tl.int64) * sizes.heads + h) * sizes.sq + i
    lse2 = tl.load(lse_ptr + row, mask=inside, other=float("inf"))
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    if dlse_ptr is not None:
        delta -= tl.load(dlse_ptr + row, mask=inside, other=0.0)
    delta = tl.where(lse2 == float("-inf"), 0.0, delta)
    tl.store(delta_ptr + row, delta, mask=inside)
    k_ptr = head_ptr(k_view, b, hk)
    v_ptr = head_ptr(v_view, b, hk)

    dq = tl.full([BLOCK_M, BLOCK_D], 0.0, tl.float32)
    for lane in range(0, count * selected.keys, BLOCK_N):
        j, keep = named_keys(list_ptr, lane, count, selected, k_end, BLOCK_N, WHOLE)
        see = seen_pairs(i[:, None], j[None, :], inside[:, None], keep[None, :], shift, CAUSAL)  # [BLOCK_M, BLOCK_N]
        k = load_rows(k_ptr, j.to(tl.int64) * k_view.row, keep, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
        v = load_rows(v_ptr, j.to(tl.int64) * v_view.row, keep, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
        p = weights(tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2, lse2[:, None], see, True)
        dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
        ds = score_gradient(p, dp, delta[:, None], see, True)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)

    store_rows(dq_view.ptr, dq * scale, row_offsets(dq_view, b, h, i), inside, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)


@kernel
def selected_dkdv_kernel(
    q_view: View,
    k_view: View,
    v_view: View,
    do_view: View,
    dk_view: View,
    dv_view: View,
    lse_ptr,
    delta_ptr,
    k_lengths_ptr,
    scale,
    scale_log2,
    selected: SelectedBlocks,
    sizes: SelectedSizes,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_D: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Compute dK = scale * dS^T Q and dV = P^T dO of one tile of keys: one program per (sequence, kv head, tile of keys of one block).

    The program walks the packed rows of the lists that name its block; `WHOLE`: no tile of rows crosses the end of a list.
    """
    blocks = tl.cdiv(sizes.sk, selected.keys)
    tiles = tl.cdiv(selected.keys, BLOCK_N)
    bh = tl.program_id(0) // tiles // blocks
    block = tl.program_id(0) // tiles % blocks
    b = bh // sizes.kv_heads
    hk = bh % sizes.kv_heads
    k_end = declared(k_lengths_ptr, b, sizes.sk)
    shift = sizes.align_end * (k_end - sizes.sq)
    slot = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    j = block * selected.keys + slot  # flashverify: int32-offset is declared, a key of the sequence
    keep = (slot < selected.keys) & (j < k_end)
    table = list_number(selected, b, hk, 0, 1)
    begins_ptr = selected.begins + table * (blocks + 1) + block
    begin = tl.load(begins_ptr)
    count = (tl.load(begins_ptr + 1) - begin).to(tl.int32)
    namers_ptr = selected.namers + table * selected.entries + begin
    k = load_rows(head_ptr(k_view, b, hk), j.to(tl.int64) * k_view.row, keep, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
    v = load_rows(head_ptr(v_view, b, hk), j.to(tl.int64) * v_view.row, keep, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)

    dk = tl.full([BLOCK_N, BLOCK_D], 0.0, tl.float32)
    dv = tl.full([BLOCK_N, BLOCK_DV], 0.0, tl.float32)
    for lane in range(0, count * sizes.group * selected.rows, BLOCK_M):
        i, h, inside = naming_rows(namers_ptr, lane, count, hk, selected, sizes, BLOCK_M, WHOLE)
        see = seen_pairs(i[None, :], j[:, None], inside[None, :], keep[:, None], shift, CAUSAL)  # [BLOCK_N, BLOCK_M]
        q = load_rows(q_view.ptr, row_offsets(q_view, b, h, i), inside, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
        do = load_rows(do_view.ptr, row_offsets(do_view, b, h, i), inside, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
        row = (b.to(tl.int64) * sizes.heads + h) * sizes.sq + i
        lse2 = tl.load(lse_ptr + row, mask=inside, other=float("inf"))
        delta = tl.load(delta_ptr + row, mask=inside, other=0.0)
        zT = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale_log2
        pT = weights(zT, lse2[None, :], see, True)  # [BLOCK_N, BLOCK_M]
        dpT = tl.dot(v, tl.trans(do), input_precision=PRECISION)
        dv = tl.dot(pT.to(do.dtype), do, dv, input_precision=PRECISION)
        dsT = score_gradient(pT, dpT, delta[None, :], see, True)
        dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)

    rows = (slot < selected.keys) & (j < sizes.sk)
    dk_ptr = head_ptr(dk_view, b, hk)
    dv_ptr = head_ptr(dv_view, b, hk)
    store_rows(dk_ptr, dk * scale, j.to(tl.int64) * dk_view.row, rows, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
    store_rows(dv_ptr, dv, j.to(tl.int64) * dv_view.row, rows, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
