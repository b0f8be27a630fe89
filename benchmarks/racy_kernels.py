"""Five races as attention kernels have them, each a Triton kernel that is right as long as its programs come in the usual order.

In each of them one program of a pair does `lead` steps of other work before its part and the other one `lag`. The steps follow a chain
of dependent loads, so that what else runs on the device changes how long they take. With `lag` somewhat above `lead` the race is
hardly ever lost; the larger the gap, the rarer. Every answer is a small integer, exact in any right order.

A `Race` says how its kernel is run, and how the same without the race is run: the control, which must never differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RACES", "Race", "chain"]

HEADS, D, SPLITS = 4, 16, 4


@triton.jit
def _after(chain_ptr, steps):
    """0, after `steps` dependent loads."""
    at = tl.program_id(0) * 0
    for _ in range(steps):
        at = tl.load(chain_ptr + at)
    return tl.minimum(at, 0)


@triton.jit
def lost_update(out_ptr, chain_ptr, lead, lag, SAFE: tl.constexpr, D: tl.constexpr):
    head, side = tl.program_id(0), tl.program_id(1)
    i = head * D + tl.arange(0, D)
    zero = _after(chain_ptr, lead + side * (lag - lead))
    if SAFE:
        tl.atomic_add(out_ptr + i, 1.0 + side + zero)
    else:
        tl.store(out_ptr + i, tl.load(out_ptr + i) + 1.0 + side + zero)


@triton.jit
def sum_in_any_order(out_ptr, chain_ptr, lead, lag, SAFE: tl.constexpr, D: tl.constexpr):
    """Three key tiles add up dQ: 2^24 + 1 - 2^24 is 1 or 0, by the order of the additions."""
    head, side = tl.program_id(0), tl.program_id(1)
    i = head * D + tl.arange(0, D)
    zero = _after(chain_ptr, lead + side * (lag - lead))
    if SAFE:
        value = tl.where(side == 1, 1.0, 0.0) + zero
    else:
        value = tl.where(side == 0, 16777216.0, tl.where(side == 1, -16777216.0, 1.0)) + zero
    tl.atomic_add(out_ptr + i, value)


@triton.jit
def flag_without_order(out_ptr, partial_ptr, flag_ptr, chain_ptr, lead, lag, SAFE: tl.constexpr, D: tl.constexpr):
    """The second program reads what the first one stored without a wait for its flag."""
    head, side = tl.program_id(0), tl.program_id(1)
    i = head * D + tl.arange(0, D)
    zero = _after(chain_ptr, lead + side * (lag - lead))
    if side == 0:
        tl.store(partial_ptr + i, tl.zeros([D], tl.float32) + 3.0 + zero)
        tl.debug_barrier()
        tl.atomic_xchg(flag_ptr + head, 1)
    else:
        if SAFE:
            while tl.atomic_add(flag_ptr + head, 0) == 0:
                pass
            tl.debug_barrier()
        tl.store(out_ptr + i, tl.load(partial_ptr + i) + zero)


@triton.jit
def merged_too_early(out_ptr, partial_ptr, count_ptr, chain_ptr, lead, lag, SAFE: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr):  # fmt: skip
    """The split that arrives as the last but one merges all of them."""
    head, split = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, D)
    zero = _after(chain_ptr, lead)
    tl.store(partial_ptr + (head * SPLITS + split) * D + i, tl.zeros([D], tl.float32) + 1.0 + split + zero)
    tl.debug_barrier()
    before = tl.atomic_add(count_ptr + head, 1)
    if before == (SPLITS - 1 if SAFE else SPLITS - 2):
        total = tl.zeros([D], tl.float32) + _after(chain_ptr, lag)
        for other in range(SPLITS):
            total += tl.load(partial_ptr + (head * SPLITS + other) * D + i)
        tl.store(out_ptr + head * D + i, total)


@triton.jit
def shared_scratch(out_ptr, scratch_ptr, chain_ptr, count_ptr, lead, lag, SAFE: tl.constexpr, D: tl.constexpr):
    """The two query heads of a kv head keep their rows in one scratch row; an unrelated counter is atomic."""
    head, side = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, D)
    row = head * 2 + side if SAFE else head * 2
    zero = _after(chain_ptr, lead + side * (lag - lead))
    tl.store(scratch_ptr + row * D + i, tl.zeros([D], tl.float32) + 5.0 + side + zero)
    tl.debug_barrier()
    tl.atomic_add(count_ptr + head * 2 + side, 1)
    zero = _after(chain_ptr, lead // 8 + 1)
    tl.store(out_ptr + (head * 2 + side) * D + i, tl.load(scratch_ptr + row * D + i) + zero)


@dataclass(frozen=True, slots=True)
class Race:
    """A race that can be run.

    Attributes:
        name: of its kernel.
        run: takes the chain, `lead`, `lag` and whether the control is to run; returns the outputs.
        expected: the outputs in the usual order.
    """

    name: str
    run: Callable[[torch.Tensor, int, int, bool], torch.Tensor]
    expected: torch.Tensor


def chain(device: torch.device | str, length: int = 1 << 20) -> torch.Tensor:
    """A cycle through `length` places, far apart from one step to the next: int32, each entry the next place."""
    step = 1_048_573 % length or 1
    return ((torch.arange(length, device=device) + step) % length).to(torch.int32)


def _zeros(chained: torch.Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=chained.device)


def _lost(chained: torch.Tensor, lead: int, lag: int, safe: bool) -> torch.Tensor:
    out = _zeros(chained, HEADS, D)
    lost_update[(HEADS, 2)](out, chained, lead, lag, SAFE=safe, D=D, num_warps=1)
    return out


def _sum(chained: torch.Tensor, lead: int, lag: int, safe: bool) -> torch.Tensor:
    out = _zeros(chained, HEADS, D)
    sum_in_any_order[(HEADS, 3)](out, chained, lead, lag, SAFE=safe, D=D, num_warps=1)
    return out


def _flag(chained: torch.Tensor, lead: int, lag: int, safe: bool) -> torch.Tensor:
    out, partial, flag = (
        _zeros(chained, HEADS, D),
        _zeros(chained, HEADS, D),
        _zeros(chained, HEADS, dtype=torch.int32),
    )
    flag_without_order[(HEADS, 2)](out, partial, flag, chained, lead, lag, SAFE=safe, D=D, num_warps=1)
    return out


def _merged(chained: torch.Tensor, lead: int, lag: int, safe: bool) -> torch.Tensor:
    out, partial = _zeros(chained, HEADS, D), _zeros(chained, HEADS, SPLITS, D)
    count = _zeros(chained, HEADS, dtype=torch.int32)
    merged_too_early[(HEADS, SPLITS)](
        out, partial, count, chained, lead, lag - lead, SAFE=safe, D=D, SPLITS=SPLITS, num_warps=1
    )
    return out


def _scratch(chained: torch.Tensor, lead: int, lag: int, safe: bool) -> torch.Tensor:
    out, scratch = _zeros(chained, HEADS, 2, D), _zeros(chained, HEADS, 2, D)
    count = _zeros(chained, HEADS * 2, dtype=torch.int32)
    shared_scratch[(HEADS, 2)](out, scratch, chained, count, lead, lag, SAFE=safe, D=D, num_warps=1)
    return out


RACES = (
    Race("lost_update", _lost, torch.full((HEADS, D), 3.0)),
    Race("sum_in_any_order", _sum, torch.ones(HEADS, D)),
    Race("flag_without_order", _flag, torch.full((HEADS, D), 3.0)),
    Race("merged_too_early", _merged, torch.full((HEADS, D), 10.0)),
    Race("shared_scratch", _scratch, torch.tensor([5.0, 6.0]).view(1, 2, 1).expand(HEADS, 2, D).clone()),
)
