"""A forward over packed sequences with the signature of `flash_attn_varlen_func`, and its adapter; forward only."""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Supports, subject


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, cu_q_ptr, cu_k_ptr, scale, group, tokens,
    q_row, q_head, k_row, k_head, v_row, v_head, o_row, o_head,
    D: tl.constexpr, DV: tl.constexpr, ROOM: tl.constexpr, ROOM_V: tl.constexpr, CAUSAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tile, head, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    first_q, first_k = tl.load(cu_q_ptr + sequence), tl.load(cu_k_ptr + sequence)
    len_q, len_k = tl.load(cu_q_ptr + sequence + 1) - first_q, tl.load(cu_k_ptr + sequence + 1) - first_k
    row = tile * BLOCK + tl.arange(0, BLOCK)
    inside = row < len_q
    d, dv = tl.arange(0, ROOM), tl.arange(0, ROOM_V)
    q_at = (first_q + row).to(tl.int64)[:, None] * q_row + head * q_head + d[None, :]
    q = tl.load(q_ptr + q_at, mask=inside[:, None] & (d < D)[None, :], other=0.0)
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, ROOM_V], tl.float32)
    for start in range(0, len_k, BLOCK):
        key = start + tl.arange(0, BLOCK)
        here = key < len_k
        at = (first_k + key).to(tl.int64)[:, None]
        k_at = at * k_row + (head // group) * k_head + d[None, :]
        v_at = at * v_row + (head // group) * v_head + dv[None, :]
        k = tl.load(k_ptr + k_at, mask=here[:, None] & (d < D)[None, :], other=0.0)
        v = tl.load(v_ptr + v_at, mask=here[:, None] & (dv < DV)[None, :], other=0.0)
        seen = here[None, :]
        if CAUSAL:  # aligned at the last key, as in FlashAttention
            seen = seen & (key[None, :] <= row[:, None] + len_k - len_q)
        s = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
        before, largest = largest, tl.maximum(largest, tl.max(s, 1))
        base = tl.where(largest == float("-inf"), 0.0, largest)
        p = tl.exp(s - base[:, None])
        total = total * tl.exp(before - base) + tl.sum(p, 1)
        acc = acc * tl.exp(before - base)[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    o = acc / tl.where(total > 0, total, 1.0)[:, None]
    o_at = (first_q + row).to(tl.int64)[:, None] * o_row + head * o_head + dv[None, :]
    tl.store(o_ptr + o_at, o.to(o_ptr.dtype.element_ty), mask=inside[:, None] & (dv < DV)[None, :])
    tl.store(lse_ptr + head * tokens + first_q + row, largest + tl.log(total), mask=inside)


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, scale, causal):
    """O `[T, Hq, Dv]` and the natural LSE `[Hq, T]` of q `[T, Hq, D]`; rows behind the last sequence are left alone."""
    (tokens, heads, dim), (_, kv_heads, dim_v), block = q.shape, v.shape, 32
    o = q.new_empty(tokens, heads, dim_v)
    lse = torch.empty(heads, tokens, dtype=torch.float32, device=q.device)
    room, room_v = (max(16, triton.next_power_of_2(n)) for n in (dim, dim_v))
    forward_kernel[(triton.cdiv(max_seqlen_q, block), heads, len(cu_seqlens_q) - 1)](
        *(q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, scale, heads // kv_heads, tokens),
        *(stride for x in (q, k, v, o) for stride in x.stride()[:2]),
        D=dim,
        DV=dim_v,
        ROOM=room,
        ROOM_V=room_v,
        CAUSAL=causal,
        BLOCK=block,
        enable_fp_fusion=False,  # a product contracted with the subtraction of the maximum is off by its own rounding: exp overflows
    )
    return o, lse


@subject(
    supports=Supports(masks=("causal", "packed"), causal=("bottom-right",), backward=False),
    contract=Contract(padding="undefined"),
)
def packed_forward(p):
    x = p.varlen()
    lengths = (x.cu_seqlens_q, x.cu_seqlens_k, x.max_seqlen_q)
    o, lse = attention_varlen(x.q, x.k, x.v, *lengths, p.scale, p.causal is not None)
    return p.outputs(o, lse, "thd", "ht")
