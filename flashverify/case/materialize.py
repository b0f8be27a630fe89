"""From a case to the tensors that a subject is given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.case.arena import Arena, Placement, contiguous, poisoned
from flashverify.case.case import POISONS
from flashverify.case.problem import Problem
from flashverify.case.values import tensor_bits
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.bits import Bits
    from flashverify.case.case import Case

__all__ = ["materialize"]


def materialize(case: Case, device: torch.device | str = "cpu", *, padding: str | None = None) -> tuple[Problem, Arena]:
    """The tensors of `case` in guarded storage.

    Elements outside the declared lengths, gaps and guard bands hold the padding; everything else has the same bits
    whatever the padding and the device. With dO expanded there is one element, which no length can leave out.

    Args:
        case: the case.
        device: where the tensors are to be.
        padding: one of `POISONS`, in place of the case's own.

    Raises:
        UsageError: the padding is unknown, or the case has pages, which no input can hold yet.
    """
    import torch

    poison = case.storage.padding if padding is None else padding
    if poison not in POISONS:
        raise UsageError(f"padding={poison!r} is not accepted: one of {POISONS}")
    if case.storage.page_size is not None:
        raise UsageError(f"page_size={case.storage.page_size} cannot be laid out yet: None")
    arena, tensors = Arena(), {}
    for name, values in tensor_bits(case).items():
        dtype = "fp32" if name == "dlse" else case.dtype
        placement = _placement(case, name)
        lengths = case.mask.key_lengths if name in ("k", "v") else case.mask.query_lengths
        buffer = poisoned(placement.size, dtype, poison, case.values.seed, name)
        _place(buffer, placement, values, lengths)
        tensors[name] = arena.add(name, buffer, placement, dtype, device)
    declared = case.mask.key_lengths
    problem = Problem(
        case=case,
        q=tensors["q"],
        k=tensors["k"],
        v=tensors["v"],
        do=tensors.get("do"),
        dlse=tensors.get("dlse"),
        key_lengths=None if declared is None else torch.tensor(declared, dtype=torch.int32, device=device),
    )
    return problem, arena


def _placement(case: Case, name: str) -> Placement:
    shapes = {"q": case.shape_q, "k": case.shape_k, "v": case.shape_v, "do": case.shape_o, "dlse": case.shape_o[:3]}
    shape = shapes[name]
    if name == "dlse":
        return contiguous(shape)
    if name == "do" and case.grad.do == "expanded":
        return Placement(shape=shape, strides=(0, 0, 0, 0), extent=1, offset=case.storage.offset)
    transposed = name == "do" and case.grad.do == "transposed"
    expanded = name in ("k", "v") and case.storage.expand
    batch, heads, rows, channels = shape
    order = {"b": batch, "h": 1 if expanded else heads, "s": rows, "d": channels}
    axes = ("b", "h", "d", "s") if transposed else (*tuple(case.storage.layout.replace("d", "")), "d")
    strides, step = {}, 1
    for position, axis in enumerate(reversed(axes)):
        strides[axis] = step
        step *= order[axis]
        if position == 0:
            step += case.storage.gap
    if expanded:
        strides["h"] = 0
    return Placement(shape=shape, strides=tuple(strides[a] for a in "bhsd"), extent=step, offset=case.storage.offset)


def _place(buffer: Bits, placement: Placement, values: Bits, lengths: tuple[int, ...] | None) -> None:
    """Writes `values` into the buffer; rows from the declared length on keep what it held."""
    from numpy.lib.stride_tricks import as_strided

    if not math.prod(placement.shape):
        return
    strides = tuple(stride * buffer.itemsize for stride in placement.strides)
    shape = tuple(
        min(n, m) if stride == 0 else n
        for n, m, stride in zip(placement.shape, values.shape, placement.strides, strict=True)
    )
    view = as_strided(buffer[placement.start :], shape, strides)
    if lengths is None or placement.strides[0] == 0:
        view[...] = values
        return
    for b, length in enumerate(lengths):
        view[b, :, :length] = values[b, :, :length]
