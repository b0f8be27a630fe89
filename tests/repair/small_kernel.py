"""A right forward in Triton, a line of which tests make wrong."""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Supports, subject


@triton.jit
def scores(q, k, scale):
    return tl.dot(q, tl.trans(k), input_precision="ieee") * scale


@triton.jit
def kernel(
    q, k, v, o, lse, scale, rows, keys, CAUSAL: tl.constexpr, D: tl.constexpr, ROOM: tl.constexpr, BLOCK: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64)
    row, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ROOM)
    at_q = (head * rows + row)[:, None] * D + d[None, :]
    inside = (row < rows)[:, None] & (d < D)[None, :]
    mine = tl.load(q + at_q, mask=inside, other=0.0)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, ROOM], tl.float32)
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        at_k = (head * keys + key)[:, None] * D + d[None, :]
        there = (key < keys)[:, None] & (d < D)[None, :]
        theirs = tl.load(k + at_k, mask=there, other=0.0)
        values = tl.load(v + at_k, mask=there, other=0.0)
        see = key[None, :] < keys
        if CAUSAL:
            see = see & (key[None, :] <= row[:, None])
        s = tl.where(see, scores(mine, theirs, scale), float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        w = tl.exp(s - new[:, None])
        decay = tl.exp(top - new)
        total = total * decay + tl.sum(w, 1)
        acc = acc * decay[:, None] + tl.dot(w, values, input_precision="ieee")
        top = new
    tl.store(o + at_q, acc / total[:, None], mask=inside)
    tl.store(lse + head * rows + row, top + tl.log(total), mask=row < rows)


def launched(q, k, v, scale, causal):
    (batch, heads, rows, dim), keys, block = q.shape, k.shape[2], 16
    room = max(16, triton.next_power_of_2(dim))
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    grid = (triton.cdiv(rows, block), batch * heads)
    kernel[grid](q, k, v, o, lse, scale, rows, keys, CAUSAL=causal, D=dim, ROOM=room, BLOCK=block)
    return o, lse


@subject(
    supports=Supports(
        dtypes=("fp32",), masks=("causal",), causal=("top-left",), gqa=False, equal_dims=True, backward=False
    ),
    contract=Contract(gradients=frozenset()),
    device="cpu",
)
def small(p):
    x = p.contiguous("bhsd")
    return launched(x.q, x.k, x.v, p.scale, p.causal is not None)
