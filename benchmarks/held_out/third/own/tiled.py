"""A forward in Triton, written for this set and by nobody's conventions: `[B, S, H, D]` by strides, natural exponentials.

It takes groups of heads, a causal mask or a window to the left (rows end at the last key), and key lengths.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject


@triton.jit
def tiled_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr,
    q_b, q_s, q_h, k_b, k_s, k_h, v_b, v_s, v_h,
    scale, heads, group, rows, keys, left, lse_room, D, DV,
    CAUSAL: tl.constexpr, LEFT: tl.constexpr, LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, ROOM: tl.constexpr, ROOM_V: tl.constexpr,
):  # fmt: skip
    """O and LSE of a tile of rows: one program per (tile, batch and query head)."""
    tile = tl.program_id(0)
    b = (tl.program_id(1) // heads).to(tl.int64)
    h = (tl.program_id(1) % heads).to(tl.int64)
    kv = h // group
    n = keys
    if LENGTHS:
        n = tl.load(lengths_ptr + b)
    shift = n - rows
    row = tile * BLOCK + tl.arange(0, BLOCK)
    d, dv = tl.arange(0, ROOM), tl.arange(0, ROOM_V)
    q = tl.load(
        q_ptr + b * q_b + h * q_h + row.to(tl.int64)[:, None] * q_s + d[None, :],
        mask=(row < rows)[:, None] & (d < D)[None, :],
        other=0.0,
    )
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, ROOM_V], tl.float32)
    stop = n
    if CAUSAL:
        stop = tl.minimum(n, (tile + 1) * BLOCK + shift)
    for start in range(0, stop, STEP):
        key = start + tl.arange(0, STEP)
        there = key < n
        k = tl.load(
            k_ptr + b * k_b + kv * k_h + key.to(tl.int64)[:, None] * k_s + d[None, :],
            mask=there[:, None] & (d < D)[None, :],
            other=0.0,
        )
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        see = there[None, :] & (row < rows)[:, None]
        if CAUSAL:
            see = see & (key[None, :] <= row[:, None] + shift)
        if LEFT:
            see = see & (key[None, :] >= row[:, None] + shift - left)
        s = tl.where(see, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - pivot[:, None])
        alpha = tl.exp(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(
            v_ptr + b * v_b + kv * v_h + key.to(tl.int64)[:, None] * v_s + dv[None, :],
            mask=there[:, None] & (dv < DV)[None, :],
            other=0.0,
        )
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    divisor = tl.where(total == 0.0, 1.0, total)
    o = acc / divisor[:, None]
    lse = m + tl.log(divisor)
    o_at = ((b * rows + row[:, None]) * heads + h) * DV + dv[None, :]
    tl.store(o_ptr + o_at, o.to(o_ptr.dtype.element_ty), mask=(row < rows)[:, None] & (dv < DV)[None, :])
    tl.store(lse_ptr + (b * heads + h) * lse_room + row, lse, mask=row < rows)


def attention(q, k, v, *, scale, causal=False, left=None, lengths=None, block=32, step=32):
    """O `[B, S, H, Dv]` and the natural LSE `[B, H, S]`."""
    (batch, rows, heads, dim), keys, dim_v = q.shape, k.shape[1], v.shape[3]
    group = heads // k.shape[2]
    o = torch.empty(batch, rows, heads, dim_v, dtype=q.dtype, device=q.device)
    lse_room = rows
    lse = torch.empty(batch * heads * (rows + block), dtype=torch.float32, device=q.device)  # with room for a last tile
    tiled_kernel[(triton.cdiv(rows, block), batch * heads)](
        q, k, v, o, lse, lengths,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        scale, heads, group, rows, keys, left or 0, lse_room, dim, dim_v,
        CAUSAL=causal, LEFT=left is not None, LENGTHS=lengths is not None,
        BLOCK=block, STEP=step,
        ROOM=max(16, triton.next_power_of_2(dim)), ROOM_V=max(16, triton.next_power_of_2(dim_v)),
    )  # fmt: skip
    return o, lse[: batch * heads * rows].view(batch, heads, rows)


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        causal=("bottom-right",),
        window_sides=("left",),
        window_alignments=("bottom-right",),
        scales=("default", "positive"),
        backward=False,
        launch=(("block", (32, 16, 64)), ("step", (32, 16, 64))),
    ),
)
def tiled(p):
    """The adapter."""
    x = p.bshd()
    o, lse = attention(
        x.q, x.k, x.v,
        scale=p.scale,
        causal=p.causal is not None,
        left=None if p.window is None else p.window[0],
        lengths=p.key_lengths,
        **dict(p.case.launch or ()),
    )  # fmt: skip
    return p.outputs(o, lse, "bshd")


SUBJECT = tiled
