"""A chunked prefill over a paged cache in Triton, written for this set: the keys before the chunk, then those of the chunk; forward only.

The queries of a sequence are the last of its keys. It takes groups of heads, a causal mask, a window to the left, and ALiBi.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject


@triton.jit
def load_keys(ptr, table_ptr, key, there, page_step, slot_step, dim, PAGE: tl.constexpr, ROOM: tl.constexpr):
    """The rows of the keys of a sequence whose pages the table names, `[len(key), ROOM]`."""
    page = tl.load(table_ptr + key // PAGE, mask=there, other=0).to(tl.int64)
    d = tl.arange(0, ROOM)
    at = page * page_step + (key % PAGE).to(tl.int64) * slot_step
    return tl.load(ptr + at[:, None] + d[None, :], mask=there[:, None] & (d < dim)[None, :], other=0.0)


@triton.jit
def step_of(q, k, v, see, bent, m, total, acc, scale):
    """One step of the online softmax; `bent` is taken from the scaled products."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale - bent
    s = tl.where(see, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp(s - pivot[:, None])
    alpha = tl.exp(m - pivot)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, total * alpha + tl.sum(p, 1), acc


@triton.jit
def prefill_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, table_ptr, lengths_ptr, slopes_ptr,
    q_b, q_s, q_h, k_page, k_slot, k_h, v_page, v_slot, v_h, table_b,
    scale, heads, group, rows, left, D, DV,
    CAUSAL: tl.constexpr, LEFT: tl.constexpr, SLOPES: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, ROOM: tl.constexpr, ROOM_V: tl.constexpr,
):  # fmt: skip
    """O and LSE of a tile of rows: one program per (tile, batch and query head)."""
    tile = tl.program_id(0)
    b = (tl.program_id(1) // heads).to(tl.int64)
    h = (tl.program_id(1) % heads).to(tl.int64)
    n = tl.load(lengths_ptr + b)
    context = n - rows
    row = tile * BLOCK + tl.arange(0, BLOCK)
    at = (row + context)[:, None]
    inside = (row < rows)[:, None]
    d, dv = tl.arange(0, ROOM), tl.arange(0, ROOM_V)
    q_at = b * q_b + h * q_h + row.to(tl.int64)[:, None] * q_s + d[None, :]
    q = tl.load(q_ptr + q_at, mask=inside & (d < D)[None, :], other=0.0)
    k_ptr += h // group * k_h
    v_ptr += h // group * v_h
    table_ptr += b * table_b
    slope = 0.0
    if SLOPES:
        slope = tl.load(slopes_ptr + h)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, ROOM_V], tl.float32)
    first = 0
    if LEFT:
        first = tl.maximum(tile * BLOCK + context - left, 0)

    before = tl.maximum(context, 0)
    for start in range(first, before, STEP):
        key = start + tl.arange(0, STEP)
        there = key < before
        j = key[None, :]
        see = there[None, :] & inside
        if LEFT:
            see = see & (j >= at - left)
        k = load_keys(k_ptr, table_ptr, key, there, k_page, k_slot, D, PAGE, ROOM)
        v = load_keys(v_ptr, table_ptr, key, there, v_page, v_slot, DV, PAGE, ROOM_V)
        m, total, acc = step_of(q, k, v, see, slope * tl.abs(at - j).to(tl.float32), m, total, acc, scale)

    stop = n
    if CAUSAL:
        stop = tl.minimum(n, (tile + 1) * BLOCK + context)
    for start in range(tl.maximum(before, first), stop, STEP):
        key = start + tl.arange(0, STEP)
        there = key < stop
        j = key[None, :]
        see = there[None, :] & inside
        if CAUSAL:
            see = see & (j <= at)
        if LEFT:
            see = see & (j >= at - left)
        k = load_keys(k_ptr, table_ptr, key, there, k_page, k_slot, D, PAGE, ROOM)
        v = load_keys(v_ptr, table_ptr, key, there, v_page, v_slot, DV, PAGE, ROOM_V)
        bent = slope * tl.abs(at - j).to(tl.float32)
        m, total, acc = step_of(q, k, v, see, bent, m, total, acc, scale)

    divisor = tl.where(total == 0.0, 1.0, total)
    o_at = ((b * rows + row[:, None]) * heads + h) * DV + dv[None, :]
    tl.store(o_ptr + o_at, (acc / divisor[:, None]).to(o_ptr.dtype.element_ty), mask=inside & (dv < DV)[None, :])
    tl.store(lse_ptr + (b * heads + h) * rows + row, m + tl.log(divisor), mask=row < rows)


def prefill(q, k_cache, v_cache, table, lengths, *, scale, causal, left=None, slopes=None, block=32, step=32):
    """O `[B, S, H, Dv]` and the natural LSE `[B, H, S]`."""
    (batch, rows, heads, dim), dim_v = q.shape, v_cache.shape[3]
    o = torch.empty(batch, rows, heads, dim_v, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, dtype=torch.float32, device=q.device)
    prefill_kernel[(triton.cdiv(rows, block), batch * heads)](
        q, k_cache, v_cache, o, lse, table, lengths, slopes,
        *q.stride()[:3], *k_cache.stride()[:3], *v_cache.stride()[:3], table.stride(0),
        scale, heads, heads // k_cache.shape[2], rows, left or 0, dim, dim_v,
        CAUSAL=causal, LEFT=left is not None, SLOPES=slopes is not None, PAGE=k_cache.shape[1],
        BLOCK=block, STEP=step,
        ROOM=max(16, triton.next_power_of_2(dim)), ROOM_V=max(16, triton.next_power_of_2(dim_v)),
        enable_fp_fusion=False,
    )  # fmt: skip
    return o, lse


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        causal=("bottom-right",),
        window_sides=("left",),
        window_alignments=("bottom-right",),
        logits=("alibi",),
        wild_slopes=False,
        page_sizes=(1, 8, 16, 48),
        always_paged=True,
        backward=False,
        also=lambda case: (
            "distances from the first key" if case.logits.alibi and not case.mask.aligned_at_end else None
        ),
        launch=(("block", (32, 16, 64)), ("step", (32, 16, 64))),
    ),
)
def prefill_of_pages(p):
    """The adapter."""
    x = p.paged("flash-attn")
    o, lse = prefill(
        x.q, x.k_cache, x.v_cache, x.block_table, x.cache_seqlens,
        scale=p.scale,
        causal=p.causal is not None,
        left=None if p.window is None else p.window[0],
        slopes=p.slopes,
        **dict(p.case.launch or ()),
    )  # fmt: skip
    return p.outputs(o, lse, "bshd")


SUBJECT = prefill_of_pages
