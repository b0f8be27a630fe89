"""Decoding in two stages in Triton, written for this set: numerators, maxima and row sums of parts of the keys, then their sum.

`[B, H, S, D]`, natural exponentials, forward only. It takes groups of heads, a causal mask whose rows end at the last key, and key lengths.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject
from flashverify.numerics import Form

BLOCK = 16


@triton.jit
def rows_at(ptr, at, limit, channels, C: tl.constexpr):
    """The rows `at` of a contiguous head, `[len(at), C]`; 0 behind `limit` and `channels`."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=(at < limit)[:, None] & (c < channels), other=0.0)


@triton.jit
def part_kernel(
    q_ptr, k_ptr, v_ptr, sum_ptr, m_ptr, l_ptr, lengths_ptr, scale,
    heads, group, rows, keys, d, dv, parts,
    CAUSAL: tl.constexpr, LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """Numerators, maxima and row sums over one part of the keys: one program per (tile of rows, part, batch and query head)."""
    part = tl.program_id(1)
    b, h = tl.program_id(2) // heads, tl.program_id(2) % heads
    hk = (b * (heads // group) + h // group).to(tl.int64)
    n = keys
    if LENGTHS:
        n = tl.load(lengths_ptr + b)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = rows_at(q_ptr + tl.program_id(2).to(tl.int64) * rows * d, i, rows, d, C)
    k_ptr += hk * keys * d
    v_ptr += hk * keys * dv
    steps = tl.cdiv(n, STEP)
    begin = steps * part // parts * STEP
    stop = tl.minimum(steps * (part + 1) // parts * STEP, n)

    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    for start in range(begin, stop, STEP):
        j = start + tl.arange(0, STEP)
        s = tl.dot(q, tl.trans(rows_at(k_ptr, j, n, d, C)), input_precision="ieee") * scale
        see = (j < n)[None, :] & (i < rows)[:, None]
        if CAUSAL:
            see = see & (j[None, :] <= i[:, None] + n - rows)
        s = tl.where(see, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - pivot[:, None])
        alpha = tl.exp(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        v = rows_at(v_ptr, j, n, dv, CV)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new

    at = (part * tl.num_programs(2) + tl.program_id(2)).to(tl.int64) * rows + i
    c = tl.arange(0, CV)[None, :]
    tl.store(sum_ptr + at[:, None] * dv + c, acc, mask=(i < rows)[:, None] & (c < dv))
    tl.store(m_ptr + at, m, mask=i < rows)
    tl.store(l_ptr + at, total, mask=i < rows)


@triton.jit
def sum_kernel(
    sum_ptr, m_ptr, l_ptr, o_ptr, lse_ptr, rows, dv, parts, BLOCK: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE from the parts: one program per (tile of rows, batch and query head)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, CV)[None, :]
    inside = (i < rows)[:, None] & (c < dv)
    first = tl.program_id(1).to(tl.int64) * rows + i
    step = tl.num_programs(1).to(tl.int64) * rows
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    for part in range(parts):
        m = tl.maximum(m, tl.load(m_ptr + part * step + first, mask=i < rows, other=float("-inf")))
    pivot = tl.where(m == float("-inf"), 0.0, m)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    for part in range(parts):
        at = part * step + first
        factor = tl.exp(tl.load(m_ptr + at, mask=i < rows, other=float("-inf")) - pivot)
        l_part = tl.load(l_ptr + at, mask=i < rows, other=0.0)
        total += l_part * factor
        acc += tl.load(sum_ptr + at[:, None] * dv + c, mask=inside, other=0.0) * factor[:, None]
    divisor = tl.where(total == 0.0, 1.0, total)
    tl.store(o_ptr + first[:, None] * dv + c, (acc / divisor[:, None]).to(o_ptr.dtype.element_ty), mask=inside)
    tl.store(lse_ptr + first, m + tl.log(divisor), mask=i < rows)


def form(case):
    """As many splits as there are parts."""
    return Form(exp="exp", n_splits=dict(case.launch).get("parts", 2), partial_lse_base="e")


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        causal=("bottom-right",),
        scales=("default", "positive"),
        max_seq_q=24,
        backward=False,
        launch=(("parts", (2, 1, 3, 5)), ("step", (32, 16, 64))),
    ),
    form=form,
)
def two_stage(p):
    """The adapter."""
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    (batch, heads, rows, d), dv = q.shape, v.shape[3]
    given = {"parts": 2, "step": 32} | dict(p.case.launch or ())
    parts, programs, tiles = given["parts"], batch * heads, triton.cdiv(rows, BLOCK)
    sums = torch.empty(parts, programs, rows, dv, device=q.device)
    m, row_sums = (torch.empty(parts, programs, rows, device=q.device) for _ in range(2))
    o = torch.empty(batch, heads, rows, dv, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, device=q.device)
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    part_kernel[(tiles, parts, programs)](
        q, k, v, sums, m, row_sums, row_sums if p.key_lengths is None else p.key_lengths, p.scale,
        heads, heads // k.shape[1], rows, k.shape[2], d, dv, parts,
        CAUSAL=p.causal is not None, LENGTHS=p.key_lengths is not None,
        BLOCK=BLOCK, STEP=given["step"], C=room, CV=room_v, enable_fp_fusion=False,
    )  # fmt: skip
    sum_kernel[(tiles, programs)](
        sums, m, row_sums, o, lse, rows, dv, parts, BLOCK=BLOCK, CV=room_v, enable_fp_fusion=False,
    )  # fmt: skip
    return o, lse


SUBJECT = two_stage
