"""From a case to the tensors that a subject is given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from flashverify.case.case import POISONS
from flashverify.case.memory.arena import Arena, Placement, contiguous
from flashverify.case.memory.paging import Pool, fill_pages, page_table, pages_placement
from flashverify.case.memory.poisons import plain_poison, poison_heads, poisoned
from flashverify.case.problem import Pages, Problem
from flashverify.case.quantised.pools import quantised_pools
from flashverify.case.shared_kv import shares
from flashverify.case.tensors import TENSORS
from flashverify.case.values.tensor_bits import tensor_bits
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.tensors import TensorSpec
    from flashverify.case.values.bits import Bits

__all__ = ["materialize"]


def materialize(case: Case, device: torch.device | str = "cpu", *, padding: str | None = None) -> tuple[Problem, Arena]:
    """The tensors of `case` in guarded storage.

    Elements outside the declared lengths or behind the last packed sequence, unused pages, gaps and guard bands hold the padding;
    everything else has the same bits whatever the padding and the device. With dO expanded there is one element, which no length
    can leave out. A V in the buffer of K has no memory of its own.

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
    arena, bits, seed = Arena(), tensor_bits(case), case.values.seed

    def filled(
        placement: Placement, dtype: str, name: str, heads: int | None, gap: int = 0, *, written: bool = False
    ) -> Bits:
        """A buffer without a value in it; `heads` is the axis of the heads, None of what has none. If `written`, values will lie everywhere in the extent."""
        extent = (placement.start, placement.start + placement.extent) if written else None
        buffer = poisoned(placement.size, dtype, poison, seed, name, extent)
        if poison == "mixed" and heads is not None and not written:
            poison_heads(buffer, placement, heads, gap, dtype, seed, name)
        return buffer

    def floats(spec: TensorSpec) -> torch.Tensor | None:
        if spec.name not in bits:
            return None
        dtype, placement = spec.dtype_in(case), _placement(case, spec)
        regions, gap = _regions(case, spec, placement.shape), 0 if spec.dtype == "fp32" else case.storage.gap
        written = placement.dense and (regions is None or placement.strides[0] == 0)
        buffer = filled(placement, dtype, spec.name, _heads_of(spec), gap, written=written)
        _place(buffer, placement, bits[spec.name], regions)
        return arena.add(spec.name, buffer, placement, dtype, device)

    def whole(name: str, dtype: str, values: Any) -> torch.Tensor | None:
        """Integers or bools in a contiguous guarded buffer."""
        if values is None:
            return None
        array = np.array(values, dtype=np.int32) if isinstance(values, tuple) else values
        placement = contiguous(array.shape)
        buffer = filled(placement, dtype, name, None)
        buffer[placement.start : placement.start + placement.extent] = array.reshape(-1).view(buffer.dtype)
        return arena.add(name, buffer, placement, dtype, device)

    def codes(spec: TensorSpec) -> torch.Tensor | None:
        """Bytes that lie as floats of the case do."""
        if spec.values is None or (values := spec.values(case)) is None:
            return None
        placement = _placement(case, spec)
        buffer = filled(placement, spec.dtype, spec.name, _heads_of(spec), case.storage.gap)
        _place(buffer, placement, values, _regions(case, spec, placement.shape))
        return arena.add(spec.name, buffer, placement, spec.dtype, device)

    def pages() -> Pages | None:
        if case.storage.page_size is None:
            return None
        table = page_table(case, plain_poison(poison, seed))
        if case.quantised is not None:
            given = quantised_pools(case)
        else:
            names = ("k",) if shares(case) else ("k", "v")
            given = {name: Pool(values=bits[name], dtype=case.dtype) for name in names}
        pools = {}
        for name, pool in given.items():
            placement = pages_placement(case, table.pages, pool)
            buffer = filled(placement, pool.dtype, f"pages.{name}", 2, case.storage.gap if pool.channels else 0)
            fill_pages(case, table, buffer, placement, pool)
            view = arena.add(f"pages.{name}", buffer, placement, pool.dtype, device)
            pools[name] = view if pool.channels is not None else view.squeeze(-1)
        entries = whole("pages.table", "int32", table.entries)
        assert entries is not None
        return Pages(**(pools if "v" in pools else pools | {"v": pools["k"]}), table=entries)

    found: dict[str, Any] = {}
    for name, spec in TENSORS.items():
        if name == "v" and shares(case):
            found[name] = found["k"]
        elif spec.is_float:
            found[name] = floats(spec)
        elif spec.dtype == "uint8":
            found[name] = codes(spec)
        elif spec.values is not None:
            found[name] = whole(name, spec.dtype, spec.values(case))
    return Problem(case=case, pages=pages(), **found), arena


def _heads_of(spec: TensorSpec) -> int | None:
    """The axis of the heads of a tensor that has one behind that of the batch."""
    return 1 if spec.axes[:1] == ("batch",) and spec.axes[1:2] in (("head_q",), ("head_kv",)) else None


def _placement(case: Case, spec: TensorSpec) -> Placement:
    shape = spec.shape(case) if spec.shape is not None else None
    assert shape is not None
    name = spec.name
    if spec.dtype == "fp32":
        return _vector(shape, case.storage.strided)
    if name == "do" and case.grad.do == "expanded":
        return Placement(shape=shape, strides=(0, 0, 0, 0), extent=1, offset=case.storage.offset)
    transposed = name == "do" and case.grad.do == "transposed"
    expanded = name in ("k", "v") and case.storage.expand
    batch, heads, rows, channels = shape
    order = {"b": batch, "h": 1 if expanded else heads, "s": rows, "d": channels}
    axes = ("b", "h", "d", "s") if transposed else (*tuple(case.storage.layout.replace("d", "")), "d")
    if case.storage.transposed and name != "do":
        axes = (*axes[:2], axes[3], axes[2])
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


def _regions(case: Case, spec: TensorSpec, shape: tuple[int, ...]) -> list[tuple[slice, ...]] | None:
    """Per batch entry the part of each axis behind the heads that belongs to the problem; None where all does."""
    inside = {
        "row": case.rows_inside,
        "key": case.keys_inside,
        "row_group": _groups_inside(case, case.rows_inside, case.seq_q),
        "key_group": _groups_inside(case, case.keys_inside, case.seq_k),
    }
    if all(inside.get(axis) is None for axis in spec.axes):
        return None
    ends = [_ends(inside.get(axis), size, shape[0]) for axis, size in zip(spec.axes[2:], shape[2:], strict=True)]
    return [tuple(map(slice, each)) for each in zip(*ends, strict=True)]


def _groups_inside(case: Case, lengths: tuple[int, ...] | None, full: int) -> tuple[int, ...] | None:
    """Per batch entry the scales that serve a declared key or row; one of a head or of the tensor always counts."""
    how = case.quantised
    if how is None or lengths is None or how.scales in ("tensor", "head"):
        return None
    return tuple(math.ceil(length / how.keys_per_scale(full)) for length in lengths)


def _ends(inside: tuple[int, ...] | None, full: int, count: int) -> tuple[int, ...]:
    """Of `count` batch entries; one that stands for all ends with the longest."""
    lengths = inside if inside is not None else (full,) * count
    return lengths if len(lengths) == count else (max(lengths, default=0),) * count


def _place(buffer: Bits, placement: Placement, values: Bits, regions: list[tuple[slice, ...]] | None) -> None:
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
    for b, region in enumerate(regions):
        part: tuple[int | slice, ...] = (b, slice(None), *region)
        view[part] = values[part]
