"""From a case to the tensors that a subject is given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from flashverify.case.case import POISONS
from flashverify.case.masks.patterns import bitmap_array, blocks_array
from flashverify.case.memory.arena import Arena, Placement, contiguous, poisoned
from flashverify.case.memory.paging import fill_pages, page_table, pages_placement
from flashverify.case.problem import Pages, Problem
from flashverify.case.values.modifiers import bias_shape
from flashverify.case.values.tensor_bits import tensor_bits
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from flashverify.case.case import Case
    from flashverify.case.values.bits import Bits

__all__ = ["materialize"]

_SINGLE = ("dlse", "slopes", "sink")
"""fp32, whatever the dtype of the case, and contiguous or every second element."""


def materialize(case: Case, device: torch.device | str = "cpu", *, padding: str | None = None) -> tuple[Problem, Arena]:
    """The tensors of `case` in guarded storage.

    Elements outside the declared lengths or behind the last packed sequence, unused pages, gaps and guard bands hold the padding;
    everything else has the same bits whatever the padding and the device. With dO expanded there is one element, which no length
    can leave out.

    Args:
        case: the case.
        device: where the tensors are to be.
        padding: one of `POISONS`, in place of the case's own.

    Raises:
        UsageError: the padding is unknown.
    """
    poison = case.storage.padding if padding is None else padding
    if poison not in POISONS:
        raise UsageError(f"padding={poison!r} is not accepted: one of {POISONS}")
    arena, bits = Arena(), tensor_bits(case)

    def floats(name: str) -> torch.Tensor | None:
        if name not in bits:
            return None
        dtype = "fp32" if name in _SINGLE else case.dtype
        placement = _placement(case, name)
        buffer = poisoned(placement.size, dtype, poison, case.values.seed, name)
        _place(buffer, placement, bits[name], _regions(case, name))
        return arena.add(name, buffer, placement, dtype, device)

    def whole(name: str, values: NDArray[np.int32] | NDArray[np.bool_] | tuple[int, ...] | None) -> torch.Tensor | None:
        """Integers or bools in a contiguous guarded buffer."""
        if values is None:
            return None
        array = np.array(values, dtype=np.int32) if isinstance(values, tuple) else values
        dtype, placement = ("bool" if array.dtype == np.bool_ else "int32"), contiguous(array.shape)
        buffer = poisoned(placement.size, dtype, poison, case.values.seed, name)
        buffer[placement.start : placement.start + placement.extent] = array.reshape(-1).view(buffer.dtype)
        return arena.add(name, buffer, placement, dtype, device)

    def pages() -> Pages | None:
        if case.storage.page_size is None:
            return None
        table, pools = page_table(case, poison), {}
        for name in ("k", "v"):
            placement = pages_placement(case, table.pages, bits[name].shape[3])
            buffer = poisoned(placement.size, case.dtype, poison, case.values.seed, f"pages.{name}")
            fill_pages(case, table, buffer, placement, bits[name])
            pools[name] = arena.add(f"pages.{name}", buffer, placement, case.dtype, device)
        entries = whole("pages.table", table.entries)
        assert entries is not None
        return Pages(k=pools["k"], v=pools["v"], table=entries)

    q, k, v = floats("q"), floats("k"), floats("v")
    assert q is not None
    assert k is not None
    assert v is not None
    mask, packed = case.mask, case.mask.packed
    problem = Problem(
        case=case,
        q=q,
        k=k,
        v=v,
        do=floats("do"),
        dlse=floats("dlse"),
        key_lengths=whole("key_lengths", mask.key_lengths),
        query_lengths=whole("query_lengths", mask.query_lengths),
        cu_q=whole("cu_q", None if packed is None else packed.cu_q),
        cu_k=whole("cu_k", None if packed is None else packed.cu_k),
        bitmask=whole("bitmask", bitmap_array(case)),
        blocks=whole("blocks", blocks_array(case)),
        bias=floats("bias"),
        slopes=floats("slopes"),
        sink=floats("sink"),
        pages=pages(),
    )
    return problem, arena


def _placement(case: Case, name: str) -> Placement:
    if name in _SINGLE:
        return _vector(case.shape_o[:3] if name == "dlse" else (case.heads_q,), case.storage.strided)
    shapes = {"q": case.shape_q, "k": case.shape_k, "v": case.shape_v, "do": case.shape_o}
    shape = shapes[name] if name in shapes else bias_shape(case)
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


def _vector(shape: tuple[int, ...], strided: bool) -> Placement:
    dense = contiguous(shape)
    if not strided:
        return dense
    return Placement(shape=shape, strides=tuple(2 * stride for stride in dense.strides), extent=2 * dense.extent)


def _regions(case: Case, name: str) -> list[tuple[slice, slice]] | None:
    """Per batch entry the rows and columns that belong to the problem; None where all do."""
    rows, keys = case.rows_inside, case.keys_inside
    whole = slice(None)
    if name in ("slopes", "sink") or (rows is None and keys is None):
        return None
    if name == "bias":
        count = bias_shape(case)[0]
        ends = (_ends(rows, case.seq_q, count), _ends(keys, case.seq_k, count))
        return [(slice(row), slice(key)) for row, key in zip(*ends, strict=True)]
    inside = keys if name in ("k", "v") else rows
    return None if inside is None else [(slice(length), whole) for length in inside]


def _ends(inside: tuple[int, ...] | None, full: int, count: int) -> tuple[int, ...]:
    """Of `count` batch entries; one that stands for all ends with the longest."""
    lengths = inside if inside is not None else (full,) * count
    return lengths if len(lengths) == count else (max(lengths, default=0),) * count


def _place(buffer: Bits, placement: Placement, values: Bits, regions: list[tuple[slice, slice]] | None) -> None:
    """Writes `values` into the buffer; what lies outside the regions keeps what it held."""
    if not math.prod(placement.shape):
        return
    strides = tuple(stride * buffer.itemsize for stride in placement.strides)
    shape = tuple(
        min(n, m) if stride == 0 else n
        for n, m, stride in zip(placement.shape, values.shape, placement.strides, strict=True)
    )
    view = as_strided(buffer[placement.start :], shape, strides)
    if regions is None or placement.strides[0] == 0:
        view[...] = values
        return
    for b, (rows, columns) in enumerate(regions):
        part = (b, slice(None), rows) if view.ndim == 3 else (b, slice(None), rows, columns)
        view[part] = values[part]
