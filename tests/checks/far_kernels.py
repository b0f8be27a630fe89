"""Attention as Triton kernels of their own, right at any strides."""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Supports, subject

__all__ = ["attend", "attend_packed"]


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, cu_q_ptr, cu_k_ptr, scale, group, rows, keys,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row, lse_batch, lse_head,
    D: tl.constexpr, DV: tl.constexpr, ROOM: tl.constexpr, ROOM_V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    first_q, first_k = b * 0, b * 0
    if cu_q_ptr is not None:
        first_q, first_k = tl.load(cu_q_ptr + b).to(tl.int64), tl.load(cu_k_ptr + b).to(tl.int64)
        rows, keys = tl.load(cu_q_ptr + b + 1) - first_q, tl.load(cu_k_ptr + b + 1) - first_k
    i = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    d, dv, here = tl.arange(0, ROOM), tl.arange(0, ROOM_V), i < rows
    q_at = b * q_batch + h * q_head + first_q * q_row
    k_at = b * k_batch + h // group * k_head + first_k * k_row
    v_at = b * v_batch + h // group * v_head + first_k * v_row
    o_at = b * o_batch + h * o_head + first_q * o_row
    q = tl.load(q_ptr + q_at + i[:, None] * q_row + d[None, :], mask=here[:, None] & (d < D)[None, :], other=0.0)
    largest, total = tl.full([BLOCK], -1e30, tl.float32), tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, ROOM_V], tl.float32)
    for start in range(0, keys, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < keys
        k = tl.load(
            k_ptr + k_at + j.to(tl.int64)[:, None] * k_row + d[None, :],
            mask=inside[:, None] & (d < D)[None, :],
            other=0.0,
        )
        v = tl.load(
            v_ptr + v_at + j.to(tl.int64)[:, None] * v_row + dv[None, :],
            mask=inside[:, None] & (dv < DV)[None, :],
            other=0.0,
        )
        s = tl.dot(q.to(tl.float32), tl.trans(k).to(tl.float32), input_precision="ieee") * scale
        s = tl.where(inside[None, :], s, -1e30)
        before, largest = largest, tl.maximum(largest, tl.max(s, 1))
        p = tl.exp(s - largest[:, None])
        total = total * tl.exp(before - largest) + tl.sum(p, 1)
        acc = acc * tl.exp(before - largest)[:, None] + tl.dot(p, v.to(tl.float32), input_precision="ieee")
    o = acc / tl.where(total > 0, total, 1.0)[:, None]
    lse = tl.where(total > 0, largest + tl.log(total), float("-inf"))
    tl.store(
        o_ptr + o_at + i[:, None] * o_row + dv[None, :],
        o.to(o_ptr.dtype.element_ty),
        mask=here[:, None] & (dv < DV)[None, :],
    )
    tl.store(lse_ptr + b * lse_batch + h * lse_head + first_q + i, lse, mask=here)


@triton.jit
def delta_kernel(o_ptr, do_ptr, delta_ptr, rows, o_batch, o_head, o_row, do_batch, do_head, do_row, do_channel, delta_batch, delta_head,
                 DV: tl.constexpr, ROOM_V: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    dv, here = tl.arange(0, ROOM_V), i < rows
    keep = here[:, None] & (dv < DV)[None, :]
    o = tl.load(o_ptr + b * o_batch + h * o_head + i[:, None] * o_row + dv[None, :], mask=keep, other=0.0)
    do = tl.load(
        do_ptr + b * do_batch + h * do_head + i[:, None] * do_row + dv[None, :] * do_channel, mask=keep, other=0.0
    )
    tl.store(
        delta_ptr + b * delta_batch + h * delta_head + i, tl.sum(o.to(tl.float32) * do.to(tl.float32), 1), mask=here
    )


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, scratch_ptr, dk_ptr, dv_ptr, scale, group, rows, keys,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, do_batch, do_head, do_row, do_channel,
    lse_batch, lse_head, delta_batch, delta_head, scratch_batch, scratch_head, scratch_row,
    dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row,
    D: tl.constexpr, DV: tl.constexpr, ROOM: tl.constexpr, ROOM_V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    d, dv, here = tl.arange(0, ROOM), tl.arange(0, ROOM_V), i < rows
    wide, wide_v = here[:, None] & (d < D)[None, :], here[:, None] & (dv < DV)[None, :]
    q = tl.load(q_ptr + b * q_batch + h * q_head + i[:, None] * q_row + d[None, :], mask=wide, other=0.0).to(tl.float32)
    do = tl.load(
        do_ptr + b * do_batch + h * do_head + i[:, None] * do_row + dv[None, :] * do_channel, mask=wide_v, other=0.0
    )
    lse = tl.load(lse_ptr + b * lse_batch + h * lse_head + i, mask=here, other=0.0)
    delta = tl.load(delta_ptr + b * delta_batch + h * delta_head + i, mask=here, other=0.0)
    acc = tl.zeros([BLOCK, ROOM], tl.float32)
    for start in range(0, keys, BLOCK):
        j = (start + tl.arange(0, BLOCK)).to(tl.int64)
        inside = (j < keys)[:, None]
        k = tl.load(
            k_ptr + b * k_batch + h // group * k_head + j[:, None] * k_row + d[None, :],
            mask=inside & (d < D)[None, :],
            other=0.0,
        )
        v = tl.load(
            v_ptr + b * v_batch + h // group * v_head + j[:, None] * v_row + dv[None, :],
            mask=inside & (dv < DV)[None, :],
            other=0.0,
        )
        s = tl.dot(q, tl.trans(k).to(tl.float32), input_precision="ieee") * scale
        p = tl.where((j < keys)[None, :], tl.exp(s - lse[:, None]), 0.0)
        dp = tl.dot(do.to(tl.float32), tl.trans(v).to(tl.float32), input_precision="ieee")
        ds = p * (dp - delta[:, None]) * scale
        acc += tl.dot(ds, k.to(tl.float32), input_precision="ieee")
        dk, dv_tile = (
            tl.dot(tl.trans(ds), q, input_precision="ieee"),
            tl.dot(tl.trans(p), do.to(tl.float32), input_precision="ieee"),
        )
        dk_at, dv_at = b * dk_batch + h // group * dk_head, b * dv_batch + h // group * dv_head
        tl.atomic_add(dk_ptr + dk_at + j[:, None] * dk_row + d[None, :], dk, mask=inside & (d < D)[None, :])
        tl.atomic_add(dv_ptr + dv_at + j[:, None] * dv_row + dv[None, :], dv_tile, mask=inside & (dv < DV)[None, :])
    at = b * scratch_batch + h * scratch_head + i[:, None] * scratch_row
    tl.store(scratch_ptr + at + d[None, :], acc, mask=wide)


def _sizes(q, v):
    dim, dim_v = q.shape[-1], v.shape[-1]
    power = triton.next_power_of_2
    return {"D": dim, "DV": dim_v, "ROOM": max(16, power(dim)), "ROOM_V": max(16, power(dim_v)), "BLOCK": 16}


def _backward(p, forward):
    q, k, v, o, lse, do, sizes = p.q, p.k, p.v, forward.o, forward.lse, p.do, _sizes(p.q, p.v)
    batch, heads, rows, dim = q.shape
    delta = torch.empty(batch, heads, rows, dtype=torch.float32, device=q.device)
    scratch = torch.empty(batch, heads, rows, dim, dtype=torch.float32, device=q.device)
    dk, dv = (torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v))
    values, grid = {"DV": sizes["DV"], "ROOM_V": sizes["ROOM_V"], "BLOCK": 16}, (batch, heads, triton.cdiv(rows, 16))
    delta_kernel[grid](o, do, delta, rows, *o.stride()[:3], *do.stride(), *delta.stride()[:2], **values)
    of_inputs = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride(), *lse.stride()[:2])
    strides = (*of_inputs, *delta.stride()[:2], *scratch.stride()[:3], *dk.stride()[:3], *dv.stride()[:3])
    given = (p.scale, heads // k.shape[1], rows, k.shape[2])
    backward_kernel[grid](q, k, v, do, lse, delta, scratch, dk, dv, *given, *strides, **sizes)
    return {"dq": scratch.to(q.dtype), "dk": dk.to(k.dtype), "dv": dv.to(v.dtype)}


@subject(supports=Supports(), backward=_backward)
def attend(p):
    q, k, v, sizes = p.q, p.k, p.v, _sizes(p.q, p.v)
    (batch, heads, rows, _), keys = q.shape, k.shape[2]
    o = torch.empty(batch, heads, rows, v.shape[-1], dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, dtype=torch.float32, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3], *lse.stride()[:2])
    grid = (batch, heads, triton.cdiv(rows, 16))
    forward_kernel[grid](q, k, v, o, lse, None, None, p.scale, heads // k.shape[1], rows, keys, *strides, **sizes)
    return o, lse


@subject(
    supports=Supports(required_masks=("packed",), masks=("packed",), backward=False),
    contract=Contract(padding="undefined"),
)
def attend_packed(p):
    tokens = p.varlen()
    q, k, v, sizes = tokens.q, tokens.k, tokens.v, _sizes(tokens.q, tokens.v)
    o = torch.empty(*q.shape[:2], v.shape[-1], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    grid = (tokens.cu_seqlens_q.shape[0] - 1, q.shape[1], triton.cdiv(tokens.max_seqlen_q, 16))
    strides = [(0, x.stride(1), x.stride(0)) for x in (q, k, v, o)]
    forward_kernel[grid](
        *(q, k, v, o, lse, tokens.cu_seqlens_q, tokens.cu_seqlens_k, p.scale, q.shape[1] // k.shape[1], 0, 0),
        *(*strides[0], *strides[1], *strides[2], *strides[3], 0, lse.stride(0)),
        **sizes,
    )
    return p.outputs(o, lse, layout="thd", lse_layout="ht")
