"""A causal forward in Triton, and the same with a planted bug: its diagonal is one key too wide."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, rows, keys, scale,
    D: tl.constexpr, ROOM: tl.constexpr, CAUSAL: tl.constexpr, SLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row, d = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ROOM)
    inside = (row < rows)[:, None] & (d < D)[None, :]
    q_at = head * rows * D + row.to(tl.int64)[:, None] * D + d[None, :]
    q = tl.load(q_ptr + q_at, mask=inside, other=0.0)
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, ROOM], tl.float32)
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        at = head * keys * D + key.to(tl.int64)[:, None] * D + d[None, :]
        there = (key < keys)[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + at, mask=there, other=0.0)
        v = tl.load(v_ptr + at, mask=there, other=0.0)
        seen = (key < keys)[None, :]
        if CAUSAL:
            seen = seen & (key[None, :] <= row[:, None] + SLIP)
        s = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
        before, largest = largest, tl.maximum(largest, tl.max(s, 1))
        p = tl.exp(s - largest[:, None])
        total = total * tl.exp(before - largest) + tl.sum(p, 1)
        acc = acc * tl.exp(before - largest)[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    tl.store(o_ptr + q_at, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=inside)
    tl.store(lse_ptr + head * rows + row, largest + tl.log(total), mask=row < rows)


def attention(q, k, v, scale, causal, slip=0):
    """O and the natural LSE of contiguous `[B, H, S, D]`."""
    (batch, heads, rows, dim), block = q.shape, 32
    o, lse = torch.empty_like(q), q.new_empty(batch, heads, rows, dtype=torch.float32)
    forward_kernel[(triton.cdiv(rows, block), batch * heads)](
        *(q, k, v, o, lse, rows, k.shape[2], scale),
        D=dim,
        ROOM=max(16, triton.next_power_of_2(dim)),
        CAUSAL=causal,
        SLIP=slip,
        BLOCK=block,
    )
    return o, lse
