"""A decoding kernel over vLLM's paged cache, and its adapter: one query row per sequence, forward only."""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject


@triton.jit
def decode_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, table_ptr, lengths_ptr, scale, group,
    q_row, q_head, k_page, k_key, k_head, v_page, v_key, v_head, table_row, o_row, o_head, heads,
    D: tl.constexpr, DV: tl.constexpr, ROOM: tl.constexpr, ROOM_V: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    length = tl.load(lengths_ptr + sequence)
    d, dv = tl.arange(0, ROOM), tl.arange(0, ROOM_V)
    q = tl.load(q_ptr + sequence * q_row + head * q_head + d, mask=d < D, other=0.0).to(tl.float32)
    largest = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    acc = tl.zeros([ROOM_V], tl.float32)
    for start in range(0, length, BLOCK):
        key = start + tl.arange(0, BLOCK)
        here = key < length
        page = tl.load(table_ptr + sequence * table_row + key // PAGE, mask=here, other=0).to(tl.int64)
        k_at = page * k_page + (key % PAGE) * k_key + (head // group) * k_head
        v_at = page * v_page + (key % PAGE) * v_key + (head // group) * v_head
        k = tl.load(k_ptr + k_at[:, None] + d[None, :], mask=here[:, None] & (d < D)[None, :], other=0.0)
        v = tl.load(v_ptr + v_at[:, None] + dv[None, :], mask=here[:, None] & (dv < DV)[None, :], other=0.0)
        s = tl.where(here, tl.sum(q[None, :] * k.to(tl.float32), 1) * scale, float("-inf"))
        before, largest = largest, tl.maximum(largest, tl.max(s, 0))
        p = tl.exp(s - largest)
        total = total * tl.exp(before - largest) + tl.sum(p, 0)
        acc = acc * tl.exp(before - largest) + tl.sum(p[:, None] * v.to(tl.float32), 0)
    o = acc / tl.where(total > 0, total, 1.0)
    tl.store(o_ptr + sequence * o_row + head * o_head + dv, o.to(o_ptr.dtype.element_ty), mask=dv < DV)
    tl.store(lse_ptr + sequence * heads + head, largest + tl.log(total))


def decode(q, key_cache, value_cache, block_table, seq_lens, scale):
    """O `[B, Hq, Dv]` and the natural LSE `[B, Hq]` of q `[B, Hq, D]`."""
    (rows, heads, dim), (_, page, kv_heads, dim_v) = q.shape, value_cache.shape
    o = q.new_empty(rows, heads, dim_v)
    lse = torch.empty(rows, heads, dtype=torch.float32, device=q.device)
    strides = (*q.stride()[:2], *key_cache.stride()[:3], *value_cache.stride()[:3], block_table.stride(0))
    decode_kernel[(rows, heads)](
        *(q, key_cache, value_cache, o, lse, block_table, seq_lens, scale, heads // kv_heads),
        *(*strides, *o.stride()[:2], heads),
        D=dim,
        DV=dim_v,
        ROOM=triton.next_power_of_2(dim),
        ROOM_V=triton.next_power_of_2(dim_v),
        PAGE=page,
        BLOCK=32,
        enable_fp_fusion=False,  # a product contracted with the subtraction of the maximum is off by its own rounding: exp overflows
    )
    return o, lse


@subject(
    supports=Supports(masks=("key_lengths",), seq_q=(1,), page_sizes=(1, 16, 64), always_paged=True, backward=False)
)
def paged_decode(p):
    x = p.paged("vllm")
    o, lse = decode(x.q, x.key_cache, x.value_cache, x.block_table, x.seq_lens, p.scale)
    return p.outputs(o, lse, "thd", "th")
