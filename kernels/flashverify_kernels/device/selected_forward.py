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
    row_offsets,
    seen_pairs,
    tile_of_list,
)
from flashverify_kernels.device.softmax import finish, online_step


@kernel
def selected_forward_kernel(
    q_view: View,
    k_view: View,
    v_view: View,
    o_view: View,
    lse_ptr,
    k_lengths_ptr,
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
    """Compute O and the base-2 LSE, `[B, heads, sq]` fp32 contiguous: one program per (sequence, kv head, list, tile of packed rows)."""
    b, hk, n, i, h, inside = tile_of_list(tl.program_id(0), selected, sizes, BLOCK_M)
    k_end = declared(k_lengths_ptr, b, sizes.sk)
    shift = sizes.align_end * (k_end - sizes.sq)
    number = list_number(selected, b, hk, n, tl.cdiv(sizes.sq, selected.rows))
    list_ptr = selected.lists + number * selected.entries
    count = tl.load(selected.counts + number)
    q = load_rows(q_view.ptr, row_offsets(q_view, b, h, i), inside, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
    k_ptr = head_ptr(k_view, b, hk)
    v_ptr = head_ptr(v_view, b, hk)

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for lane in range(0, count * selected.keys, BLOCK_N):
        j, keep = named_keys(list_ptr, lane, count, selected, k_end, BLOCK_N, WHOLE)
        see = seen_pairs(i[:, None], j[None, :], inside[:, None], keep[None, :], shift, CAUSAL)  # [BLOCK_M, BLOCK_N]
        k = load_rows(k_ptr, j.to(tl.int64) * k_view.row, keep, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
        z = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
        p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, True)
        v = load_rows(v_ptr, j.to(tl.int64) * v_view.row, keep, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)

    divisor, lse2 = finish(m_i, l_i)
    o = acc / divisor[:, None]
    store_rows(o_view.ptr, o, row_offsets(o_view, b, h, i), inside, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    row = (b.to(tl.int64) * sizes.heads + h) * sizes.sq + i
    tl.store(lse_ptr + row, lse2, mask=inside)
