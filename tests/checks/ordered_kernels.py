"""Attention as a Triton kernel and a step behind it that is right, or wrong in one way that shows from pass to pass."""

import itertools

import torch
import triton
import triton.language as tl

from flashverify import Contract, Supports, subject
from tests.checks.padded_kernels import attend

__all__ = ["DEFECTS", "stepped"]

DEFECTS = {
    "the last program wins": ("program-order", "order"),
    "added atomically": ("program-order", "order"),
    "never written": ("repeat", "repeat"),
    "kept of the last call": ("repeat", "repeat"),
    "counted by the host": ("repeat", "repeat"),
}
"""By what the step does: the question of `determinism` that finds it, and the class of its failure."""


@triton.jit
def step_kernel(o_ptr, scratch_ptr, out_ptr, factor, count, WRONG: tl.constexpr, TILE: tl.constexpr):
    at = tl.program_id(0)
    of = at * TILE + tl.arange(0, TILE)
    o = tl.load(o_ptr + of, mask=of < count, other=0.0) * factor
    tl.store(out_ptr + of, o, mask=of < count)
    if WRONG == "the last program wins":
        tl.store(out_ptr, at * 1.0)
    if WRONG == "added atomically":
        tl.atomic_add(scratch_ptr, 1.0)
        tl.store(out_ptr + of, o + tl.load(scratch_ptr), mask=of < count)
    if WRONG == "never written" or WRONG == "kept of the last call":
        bits = tl.load(scratch_ptr.to(tl.pointer_type(tl.int32)) + 1)
        tl.store(out_ptr + of, o + (bits % 1024).to(tl.float32), mask=of < count)


def stepped(wrong=""):
    """A subject without a backward that takes the step."""
    inner, calls, kept = attend(), itertools.count(), torch.zeros(1 << 10)

    def function(p):
        o, lse = inner.function(p)
        number, count = next(calls), o.numel()
        scratch = o.new_zeros(count + 2)
        if wrong == "never written":
            scratch = o.new_empty(count + 2)
        if wrong == "kept of the last call":
            scratch = kept
            kept.view(torch.int32)[1] = number
        out, factor = torch.empty_like(o), 1.0 + (number if wrong == "counted by the host" else 0)
        tile = 32
        step_kernel[(triton.cdiv(count, tile),)](o, scratch, out, factor, count, WRONG=wrong, TILE=tile)
        return out, lse

    accepted = Supports(
        masks=("key_lengths",), dtypes=("fp32",), contiguous=True, backward=False,
        seq_q=range(1, 17), seq_k=range(1, 17), group_sizes=(1,), dim_pairs=((16, 16),),
    )  # fmt: skip
    return subject(supports=accepted, contract=Contract(deterministic=True))(function)
