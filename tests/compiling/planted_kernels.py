from typing import NamedTuple

import torch
import triton
import triton.language as tl

from flashverify.subjects import Contract, Supports, subject


@triton.jit
def unfilled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)  # PLANTED unfilled-load
    tl.store(y_ptr + i, x, mask=i < n)


@triton.jit
def overflowing(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    offset = row * stride  # PLANTED int32-offset
    x = tl.load(x_ptr + offset + i, mask=i < n, other=0.0)
    y_row = y_ptr + row.to(tl.int64) * stride
    tl.store(y_row + i, x, mask=i < n)


@triton.jit
def racing(x_ptr, y_ptr, count_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(count_ptr, 1)  # integers: any order gives the same sum
    tl.atomic_add(y_ptr + (i % 4), x, mask=i < n)  # PLANTED atomic


@triton.jit
def clean(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * stride
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + i, mask=start + i < n, other=0.0)
        tl.store(y_ptr + row + start + i, x, mask=start + i < n)


class View(NamedTuple):
    ptr: object
    stride: tl.int64


@triton.jit
def recorded(x: View, y: View, sizes, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x.ptr + row * x.stride + i, mask=i < sizes[0], other=0.0)
    tl.store(y.ptr + row.to(tl.int64) * y.stride + i, x, mask=i < sizes[0])


@triton.jit
def unpacked(x_ptr, y_ptr, z_ptr, D: tl.constexpr):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i[:, None] * D + tl.arange(0, D)[None, :])
    pair = tl.load(y_ptr + i[:, None] * (D // 2) + tl.arange(0, D // 2)[None, :])
    y = tl.interleave(pair & 15, pair >> 4).to(tl.float16)
    z = tl.dot(x, tl.trans(y))  # PLANTED narrow-product
    tl.store(z_ptr + i[:, None] * 16 + i[None, :], z)


@triton.jit
def broken(x_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK > 64, "a block of more than 64")
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)


def _copy(kernel):
    def attention(p):
        x = p.q.contiguous()
        y = torch.zeros_like(x, dtype=torch.float32 if kernel is racing else x.dtype)
        n = x.numel()
        if kernel is racing:
            kernel[(1,)](x, y, torch.zeros(1, dtype=torch.int32), n, BLOCK=64)
        elif kernel is unfilled:
            kernel[(1,)](x, y, n, BLOCK=64)
        else:
            kernel[(2,)](x, y, 16, n // 2, BLOCK=64, num_warps=2)
        return y

    return attention


def _all(p):
    *_, y = (_copy(kernel)(p) for kernel in (unfilled, overflowing, racing, clean))
    return y


def _subject(name, attention):
    supports = Supports(dtypes=("fp16",), backward=False)
    contract = Contract(lse_base=None, deterministic=True)
    return subject(name=name, supports=supports, contract=contract)(attention)


UNFILLED, CLEAN = (_subject(kernel.__name__, _copy(kernel)) for kernel in (unfilled, clean))
ALL = _subject("all", _all)
