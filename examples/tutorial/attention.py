"""Causal attention with a sliding window in Triton, with the planted bug of docs/tutorial.md, and its subject."""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, length, left, scale, D: tl.constexpr, ROOM: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """A tile of rows of a head. Row i sees the keys from i - left to i; tensors are contiguous `[B, H, S, D]`."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row, d = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ROOM)
    inside = (row < length)[:, None] & (d < D)[None, :]
    q_at = (head * length + row)[:, None] * D + d[None, :]
    q = tl.load(q_ptr + q_at, mask=inside, other=0.0)
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, ROOM], tl.float32)
    first_key = tl.maximum(tile * BLOCK - left, 0)
    for start in range(tl.cdiv(first_key, BLOCK) * BLOCK, (tile + 1) * BLOCK, BLOCK):
        key = start + tl.arange(0, BLOCK)
        there = (key < length)[:, None] & (d < D)[None, :]
        at = (head * length + key)[:, None] * D + d[None, :]
        k = tl.load(k_ptr + at, mask=there, other=0.0)
        v = tl.load(v_ptr + at, mask=there, other=0.0)
        seen = (key[None, :] <= row[:, None]) & (key[None, :] >= row[:, None] - left)
        s = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
        before, largest = largest, tl.maximum(largest, tl.max(s, 1))
        base = tl.where(largest == float("-inf"), 0.0, largest)
        p = tl.exp(s - base[:, None])
        total = total * tl.exp(before - base) + tl.sum(p, 1)
        acc = acc * tl.exp(before - base)[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    tl.store(o_ptr + q_at, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=inside)
    tl.store(lse_ptr + head * length + row, largest + tl.log(total), mask=row < length)


def attention(q, k, v, scale, left):
    """O and the natural LSE `[B, H, S]` of contiguous `[B, H, S, D]`; each row sees itself and `left` keys before it."""
    (batch, heads, length, dim), block = q.shape, 16
    o, lse = torch.empty_like(q), q.new_empty(batch, heads, length, dtype=torch.float32)
    forward_kernel[(triton.cdiv(length, block), batch * heads)](
        *(q, k, v, o, lse, length, left, scale), D=dim, ROOM=max(16, triton.next_power_of_2(dim)), BLOCK=block
    )
    return o, lse


@subject(
    supports=Supports(
        dtypes=("fp16", "fp32"),
        masks=("causal", "window"),
        required_masks=("causal",),
        causal=("top-left",),
        window_sides=("left",),
        square=True,
        gqa=False,
        equal_dims=True,
        contiguous=True,
        backward=False,
    )
)
def mine(p):
    left = p.window[0] if p.window is not None else None
    return attention(p.q, p.k, p.v, p.scale, p.max_q if left is None else left)
