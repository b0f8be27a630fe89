"""Functions whose edits are tried: in plain Python and as kernels, one of which has programs that walk a loop different numbers of times."""

import torch
import triton
import triton.language as tl

BLOCK = 4


def plain(x, left, right, scale):
    first, last = left, right
    total = x * 0.0
    for at in range(0, last - first, 1):
        if at < first and scale > 1.0:
            continue
        step = min(at, last) * scale
        total += torch.where(x > step, x, 0.0)
        total = total + 1.0
    total = total * 2.0
    return total, max(
        first,  # of both
        last,
    )


@triton.jit
def walking(x, out, lengths, count, N: tl.constexpr, BLOCK: tl.constexpr):
    me = tl.program_id(0)
    length = tl.load(lengths + me)
    short = length - 2
    base = me * count
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = (at < length) & (at >= 0)
        values = tl.load(x + at, mask=mask, other=0.0)
        acc += values
    acc = acc + short
    tl.store(out + base + tl.arange(0, BLOCK), acc)


def run_plain():
    total, largest = plain(torch.arange(6.0), 1, 4, 0.5)
    return [*total.tolist(), float(largest)]


def run_walking():
    x, out, lengths = torch.arange(1.0, 33.0), torch.zeros(3 * BLOCK * 8), torch.tensor([3, 10, 6], dtype=torch.int32)
    walking[(3,)](x, out, lengths, BLOCK, N=16, BLOCK=BLOCK)
    return out.tolist()
