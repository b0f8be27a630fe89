"""Attention by a few programs that stay, in Triton, written for this set: each takes one tile of rows after the other.

`[B, H, S, D]`, natural exponentials, forward only. It takes groups of heads, causal masks and key lengths.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject

BLOCK = 16


@triton.jit
def rows_at(ptr, at, limit, channels, C: tl.constexpr):
    """The rows `at` of a contiguous head, `[len(at), C]`; 0 behind `limit` and `channels`."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=(at < limit)[:, None] & (c < channels), other=0.0)


@triton.jit
def persistent_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr, scale,
    items, tiles, heads, group, rows, keys, d, dv, align_end,
    CAUSAL: tl.constexpr, LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE: item n is the tile n % tiles of the query head n // tiles, counted through the batch."""
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        m = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        acc = tl.zeros([BLOCK, CV], tl.float32)
        head = item // tiles
        hk = (head // heads * (heads // group) + head % heads // group).to(tl.int64)
        n = keys
        if LENGTHS:
            n = tl.load(lengths_ptr + head // heads)
        first = item % tiles * BLOCK
        i = first + tl.arange(0, BLOCK)
        shift = align_end * (n - rows)
        q = rows_at(q_ptr + head.to(tl.int64) * rows * d, i, rows, d, C)
        stop = n
        if CAUSAL:
            stop = tl.minimum(first + BLOCK + shift, n)
        for start in range(0, stop, STEP):
            j = start + tl.arange(0, STEP)
            k = rows_at(k_ptr + hk * keys * d, j, n, d, C)
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            see = (j < n)[None, :] & (i < rows)[:, None]
            if CAUSAL:
                see = see & (j[None, :] <= i[:, None] + shift)
            s = tl.where(see, s, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, 1))
            pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
            p = tl.exp(s - pivot[:, None])
            alpha = tl.exp(m - pivot)
            total = total * alpha + tl.sum(p, 1)
            v = rows_at(v_ptr + hk * keys * dv, j, n, dv, CV)
            acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
            m = m_new

        divisor = tl.where(total == 0.0, 1.0, total)
        c = tl.arange(0, CV)[None, :]
        at = head.to(tl.int64) * rows + i
        o = (acc / divisor[:, None]).to(o_ptr.dtype.element_ty)
        tl.store(o_ptr + at[:, None] * dv + c, o, mask=(i < rows)[:, None] & (c < dv))
        tl.store(lse_ptr + at, m + tl.log(divisor), mask=i < rows)


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        scales=("default", "positive", "negative"),
        backward=False,
        launch=(("PROGRAMS", (3, 1, 8)), ("STEP", (32, 16, 64))),
    ),
)
def persistent(p):
    """The adapter."""
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    (batch, heads, rows, d), (kv_heads, keys, dv) = q.shape, v.shape[1:]
    given = {"PROGRAMS": 3, "STEP": 32} | dict(p.case.launch or ())
    o = torch.empty(batch, heads, rows, dv, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, device=q.device)
    tiles = triton.cdiv(rows, BLOCK)
    persistent_kernel[(given["PROGRAMS"],)](
        q, k, v, o, lse, lse if p.key_lengths is None else p.key_lengths, p.scale,
        batch * heads * tiles, tiles, heads, heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right"),
        CAUSAL=p.causal is not None, LENGTHS=p.key_lengths is not None, BLOCK=BLOCK, STEP=given["STEP"],
        C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)), enable_fp_fusion=False,
    )  # fmt: skip
    return o, lse


SUBJECT = persistent
