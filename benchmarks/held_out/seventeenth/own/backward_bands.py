"""Attention in a band of keys in Triton, written for this set: a softmax of natural exponentials that keeps its maximum and its sum apart.

`[B, H, S, D]`. The backward asks nothing of O: the kernel of dQ walks the keys twice, first for the sum of P dP of each row, and the kernel of
dK and dV has a program for each query head, whose shares torch adds over the group. It takes groups of heads, causal masks of both alignments,
windows and ALiBi.
"""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject


@triton.jit
def rows_at(ptr, at, n, channels, C: tl.constexpr):
    """The rows `at` of `n` that lie one behind the other, `[len(at), C]`; 0 outside."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=(at < n)[:, None] & (c < channels), other=0.0)


@triton.jit
def put_rows(ptr, at, n, channels, x, C: tl.constexpr):
    """Stores rows, rounded to the type of the tensor."""
    c = tl.arange(0, C)[None, :]
    tl.store(ptr + at[:, None] * channels + c, x.to(ptr.dtype.element_ty), mask=(at < n)[:, None] & (c < channels))


@triton.jit
def seen(i, j, keys, left, right, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Which keys `j` the rows see that stand at `i` among the keys."""
    see = j < keys
    if LEFT:
        see = see & (j >= i - left)
    if RIGHT:
        see = see & (j <= i + right)
    return see


@triton.jit
def scores(q, k, i, j, scale, slope):
    """Logits in natural units of the rows that stand at `i` among the keys."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    return s - slope * tl.abs(i - j).to(tl.float32)


@triton.jit
def keys_of_rows(
    first, keys, left, right, LEFT: tl.constexpr, RIGHT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr
):
    """The first tile of keys and the end of the keys that some row from the place `first` on sees."""
    begin = tl.maximum(first - left, 0) // STEP * STEP if LEFT else 0
    end = tl.minimum(keys, first + BLOCK + right) if RIGHT else keys
    return begin, end


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, max_ptr, sum_ptr, slopes_ptr, scale, heads, group, rows, keys, d, dv, left, right, shift,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O, and the maximum and the sum of the softmax, of a tile of rows of a query head."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    h = bh % heads
    kv = bh // heads * (heads // group) + h // group
    i = first + tl.arange(0, BLOCK)
    slope = 0.0 if slopes_ptr is None else tl.load(slopes_ptr + h)
    q = rows_at(q_ptr + bh * rows * d, i, rows, d, C)
    place = (i + shift)[:, None]
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    begin, end = keys_of_rows(first + shift, keys, left, right, LEFT, RIGHT, BLOCK, STEP)
    for start in range(begin, end, STEP):
        j = start + tl.arange(0, STEP)
        k = rows_at(k_ptr + kv * keys * d, j, keys, d, C)
        v = rows_at(v_ptr + kv * keys * dv, j, keys, dv, CV)
        s = scores(q, k, place, j[None, :], scale, slope)
        s = tl.where(seen(place, j[None, :], keys, left, right, LEFT, RIGHT), s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - pivot[:, None])
        alpha = tl.exp(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    empty = total == 0.0
    put_rows(o_ptr + bh * rows * dv, i, rows, dv, acc / tl.where(empty, 1.0, total)[:, None], CV)
    tl.store(max_ptr + bh * rows + i, m, mask=i < rows)
    tl.store(sum_ptr + bh * rows + i, total, mask=i < rows)


@triton.jit
def normal(s, m, total, see):
    """The weights of a tile from the maximum and the sum of its rows; 0 where nothing is seen."""
    return tl.where(see, tl.exp(s - m) / total, 0.0)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, max_ptr, sum_ptr, dlse_ptr, delta_ptr, slopes_ptr, scale, heads, group, rows, keys, d, dv,
    left, right, shift,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """DQ of a tile of rows of a query head, and what its rows subtract from dP, for `dkdv_kernel`."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    h = bh % heads
    kv = bh // heads * (heads // group) + h // group
    i = first + tl.arange(0, BLOCK)
    slope = 0.0 if slopes_ptr is None else tl.load(slopes_ptr + h)
    q = rows_at(q_ptr + bh * rows * d, i, rows, d, C)
    do = rows_at(do_ptr + bh * rows * dv, i, rows, dv, CV)
    m = tl.load(max_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
    total = tl.load(sum_ptr + bh * rows + i, mask=i < rows, other=1.0)[:, None]
    place = (i + shift)[:, None]
    begin, end = keys_of_rows(first + shift, keys, left, right, LEFT, RIGHT, BLOCK, STEP)
    delta = tl.zeros([BLOCK], tl.float32)
    for start in range(begin, end, STEP):
        j = start + tl.arange(0, STEP)
        k = rows_at(k_ptr + kv * keys * d, j, keys, d, C)
        v = rows_at(v_ptr + kv * keys * dv, j, keys, dv, CV)
        see = seen(place, j[None, :], keys, left, right, LEFT, RIGHT)
        p = normal(scores(q, k, place, j[None, :], scale, slope), m, total, see)
        delta += tl.sum(tl.where(see, p * tl.dot(do, tl.trans(v), input_precision="ieee"), 0.0), 1)
    if dlse_ptr is not None:
        delta -= tl.load(dlse_ptr + bh * rows + i, mask=i < rows, other=0.0)
    tl.store(delta_ptr + bh * rows + i, delta, mask=i < rows)
    dq = tl.zeros([BLOCK, C], tl.float32)
    for start in range(begin, end, STEP):
        j = start + tl.arange(0, STEP)
        k = rows_at(k_ptr + kv * keys * d, j, keys, d, C)
        v = rows_at(v_ptr + kv * keys * dv, j, keys, dv, CV)
        see = seen(place, j[None, :], keys, left, right, LEFT, RIGHT)
        p = normal(scores(q, k, place, j[None, :], scale, slope), m, total, see)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = tl.where(see, p * (dp - delta[:, None]), 0.0)
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    put_rows(dq_ptr + bh * rows * d, i, rows, d, dq * scale, C)


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, max_ptr, sum_ptr, delta_ptr, slopes_ptr, scale, heads, group, rows, keys, d, dv,
    left, right, shift,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """What a query head gives to dK and dV of a tile of keys, `[B, H, keys, D]` fp32."""
    first = tl.program_id(0) * STEP
    bh = tl.program_id(1).to(tl.int64)
    h = bh % heads
    kv = bh // heads * (heads // group) + h // group
    j = first + tl.arange(0, STEP)
    slope = 0.0 if slopes_ptr is None else tl.load(slopes_ptr + h)
    k = rows_at(k_ptr + kv * keys * d, j, keys, d, C)
    v = rows_at(v_ptr + kv * keys * dv, j, keys, dv, CV)
    dk = tl.zeros([STEP, C], tl.float32)
    dv_sum = tl.zeros([STEP, CV], tl.float32)
    begin = tl.maximum(first - right - shift, 0) // BLOCK * BLOCK if RIGHT else 0
    end = tl.minimum(rows, first + STEP + left - shift) if LEFT else rows
    for start in range(begin, end, BLOCK):
        i = start + tl.arange(0, BLOCK)
        q = rows_at(q_ptr + bh * rows * d, i, rows, d, C)
        do = rows_at(do_ptr + bh * rows * dv, i, rows, dv, CV)
        m = tl.load(max_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
        total = tl.load(sum_ptr + bh * rows + i, mask=i < rows, other=1.0)[:, None]
        delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
        place = (i + shift)[:, None]
        see = seen(place, j[None, :], keys, left, right, LEFT, RIGHT) & (i < rows)[:, None]
        p = normal(scores(q, k, place, j[None, :], scale, slope), m, total, see)
        dv_sum += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = tl.where(see, p * (dp - delta), 0.0)
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
    put_rows(dk_ptr + bh * keys * d, j, keys, d, dk * scale, C)
    put_rows(dv_ptr + bh * keys * dv, j, keys, dv, dv_sum, CV)


def call_of(p):
    """The inputs, one row behind the other, the slopes, the sizes and the constants."""
    (_, heads, rows, d), (_, kv_heads, keys, dv) = p.q.shape, p.v.shape
    left, right = p.window or (None, None)
    right = 0 if p.causal is not None else right
    sides = (min(side or 0, rows + keys) for side in (left, right))
    shift = keys - rows if p.causal == "bottom-right" else 0
    sizes = heads, heads // kv_heads, rows, keys, d, dv, *sides, shift
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    constants = {"LEFT": left is not None, "RIGHT": right is not None, "BLOCK": 32, "STEP": 32, "C": room, "CV": room_v}
    slopes = None if p.slopes is None else p.slopes.contiguous()
    return [x.contiguous() for x in (p.q, p.k, p.v)], (slopes, p.scale, *sizes), constants | dict(p.case.launch or ())


def gradients(p, found):
    """The gradients of q, k and v from the maxima and the sums that the forward kept."""
    (q, k, v), rest, constants = call_of(p)
    do = p.do.contiguous()
    dlse = None if p.dlse is None else p.dlse.contiguous()
    heads = q.shape[0] * q.shape[1]
    dq, delta = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    shares = [
        torch.empty(*q.shape[:2], *x.shape[2:], dtype=torch.float32, device=q.device) for x in (k, v)
    ]  # of each query head
    tiles = triton.cdiv(q.shape[2], constants["BLOCK"]), heads
    dq_kernel[tiles](q, k, v, do, dq, *found.saved, dlse, delta, *rest, **constants, enable_fp_fusion=False)
    tiles = triton.cdiv(k.shape[2], constants["STEP"]), heads
    dkdv_kernel[tiles](q, k, v, do, *shares, *found.saved, delta, *rest, **constants, enable_fp_fusion=False)
    dk, dv = (x.unflatten(1, (k.shape[1], -1)).sum(2).to(k.dtype) for x in shares)
    return {"dq": dq, "dk": dk, "dv": dv}


@subject(
    supports=Supports(
        masks=("causal", "window"),
        logits=("alibi",),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
    contract=Contract(reads_outputs=False),
    backward=gradients,
)
def bands(p):
    """The adapter."""
    (q, k, v), rest, constants = call_of(p)
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    largest, total = (torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) for _ in range(2))
    grid = triton.cdiv(q.shape[2], constants["BLOCK"]), q.shape[0] * q.shape[1]
    forward_kernel[grid](q, k, v, o, largest, total, *rest, **constants, enable_fp_fusion=False)
    return Forward(o, largest + total.clamp(min=1e-30).log(), (largest, total))


SUBJECT = bands
