"""Block pointers and tensor descriptors as ordinary pointers: each load and store becomes one of tiles of addresses, with a mask.

So lockstep, replay, the sanitizer and the counters see them as they see every other access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.interpreter.hooks import builder, stock, tl

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Block", "BlockPointer", "Descriptor", "filled", "plain", "tensors"]

_DescriptorBase: Any = getattr(tl.core, "tensor_descriptor", object)
_ALIGNED = 16
"""Bytes of which the address and the strides of a descriptor are multiples."""


def plain(value: Any) -> Any:
    """A value, out of the constant that holds it."""
    return value.value if isinstance(value, tl.core.constexpr) else value


def tensors(values: Any) -> list[Any]:
    """Integers, constants and scalar tensors as int64 tensors."""
    return [_wide(plain(value)) for value in values]


def _wide(value: Any) -> Any:
    if value.__class__ is tl.core.tensor and value.dtype is tl.int64:
        return value
    return stock.interpreter_semantic.to_tensor(value).to(tl.int64)


def _along(index: Any, axis: int, rank: int) -> Any:
    """A tensor of one axis as one of `rank` axes, of which the others have length 1."""
    for place in range(rank):
        if place != axis:
            index = tl.expand_dims(index, place)
    return index


def _both(one: Any, other: Any) -> Any:
    return other if one is None else one & other


class Block:
    """A block of a strided tensor in memory.

    Attributes:
        base: pointer to the first element of the tensor.
        sizes: of the tensor, int64 tensors.
        steps: its strides, elements, likewise.
        extents: of the block.
    """

    def __init__(self, base: Any, shape: Any, strides: Any, block_shape: Any) -> None:
        self.base, self.sizes, self.steps = base, tensors(shape), tensors(strides)
        self.extents = [int(plain(n)) for n in block_shape]
        if not len(self.sizes) == len(self.steps) == len(self.extents):
            raise ValueError("shape, strides and block_shape have different lengths")

    def addresses(self, offsets: list[Any], checked: set[int]) -> tuple[Any, Any]:
        """The pointers of the block at `offsets`, and the lanes inside the tensor along the axes that are checked; None for all."""
        indices = [first + tl.arange(0, extent) for first, extent in zip(offsets, self.extents, strict=True)]
        return self._addresses(indices, checked)

    def _addresses(self, indices: list[Any], checked: set[int]) -> tuple[Any, Any]:
        at, keep, rank = self.base, None, len(indices)
        shape = [int(plain(index.shape[0])) for index in indices]
        for axis, one in enumerate(indices):
            index = _along(one, axis, rank)
            at = at + index * self.steps[axis]
            if axis in checked:
                keep = _both(keep, (index >= 0) & (index < self.sizes[axis]))
        return tl.broadcast_to(at, shape), None if keep is None else tl.broadcast_to(keep, shape)


class BlockPointer:
    """What `tl.make_block_ptr` returns.

    Attributes:
        block: of the parent tensor.
        offsets: of the block's first element, int64 tensors.
        type: as Triton has it: a pointer to a block.
    """

    def __init__(self, block: Block, offsets: list[Any]) -> None:
        if len(offsets) != len(block.extents):
            raise ValueError("shape, strides and offsets have different lengths")
        self.block, self.offsets = block, offsets
        self.type = self.dtype = tl.pointer_type(tl.core.block_type(block.base.dtype.element_ty, block.extents))

    def advance(self, offsets: Any) -> BlockPointer:
        """The pointer moved by `offsets` elements along each axis."""
        moved = tensors(offsets)
        if len(moved) != len(self.offsets):
            raise ValueError(f"advance of {len(moved)} offsets, for a block of {len(self.offsets)} axes")
        return BlockPointer(self.block, [old + by for old, by in zip(self.offsets, moved, strict=True)])

    def addresses(self, boundary_check: Any) -> tuple[Any, Any]:
        """See `Block.addresses`."""
        axes = plain(boundary_check)
        axes = axes if isinstance(axes, (tuple, list, tl.core.tuple)) else () if axes is None else (axes,)
        rank = len(self.offsets)
        return self.block.addresses(self.offsets, {int(plain(axis)) % rank for axis in axes})


def filled(padding: Any, element: Any) -> Any:
    """The value of lanes outside the tensor; None where it is undefined."""
    padding = plain(padding)
    if padding not in (None, "", "zero", "nan"):
        raise ValueError(f"padding_option={padding!r}: accepted are '', 'zero' and 'nan'")
    if padding == "nan" and not element.is_floating():
        raise ValueError("padding_option='nan' of integers")
    return None if not padding else float("nan") if padding == "nan" else 0


class Descriptor(_DescriptorBase):  # type: ignore[misc]
    """What `tl.make_tensor_descriptor` returns, and what a kernel gets for a `TensorDescriptor` of the host.

    Attributes:
        base: pointer to the first element.
        shape: of the tensor, int64 tensors.
        strides: elements, likewise.
        tensors: all that it holds: the base, the shape, the strides.
        constants: what else decides which operations an access makes.
    """

    def __init__(self, base: Any, shape: Any, strides: Any, block_shape: Any, padding: Any = "zero") -> None:
        self._hold(Block(base, shape, strides, block_shape), padding)
        _require_aligned(base, self._block.steps, max(1, base.dtype.element_ty.primitive_bitwidth // 8))

    def _hold(self, block: Block, padding: Any) -> None:
        element = block.base.dtype.element_ty
        self.base, self.handle, self._block, self._padding = block.base, None, block, padding
        self.shape, self.strides = tl.core.tuple(block.sizes), tl.core.tuple(block.steps)
        self.type = tl.core.tensor_descriptor_base_type(tl.core.block_type(element, block.extents))
        self._other = filled(padding, element)
        self.tensors = [block.base, *block.sizes, *block.steps]
        self.constants = (plain(padding), *block.extents)

    def over(self, tensors: list[Any]) -> Descriptor:
        """The same descriptor with other tensors of the same types in place of `tensors`."""
        made, rank = object.__new__(Descriptor), len(self._block.extents)
        base, sizes, steps = tensors[0], tensors[1 : 1 + rank], tensors[1 + rank :]
        made._hold(Block(base, sizes, steps, self._block.extents), self._padding)
        return made

    def _at(self, offsets: Any) -> tuple[Any, Any]:
        return self._block.addresses(tensors(offsets), set(range(len(self._block.extents))))

    def _rows(self, rows: Any, column: Any) -> tuple[Any, Any]:
        """Of two axes: single rows, and a block of columns."""
        [first] = tensors([column])
        return self._block._addresses([rows.to(tl.int64), first + tl.arange(0, self._block.extents[-1])], {0, 1})

    def load(self, offsets: Any) -> Any:
        """The block at `offsets`; outside the tensor it holds the padding."""
        at, keep = self._at(offsets)
        return tl.load(at, mask=keep, other=self._other)

    def store(self, offsets: Any, value: Any) -> None:
        """Stores the part of the block at `offsets` that is inside the tensor."""
        at, keep = self._at(offsets)
        tl.store(at, value, mask=keep)

    def gather(self, x_offsets: Any, y_offset: Any) -> Any:
        """The rows at `x_offsets`, from column `y_offset` on."""
        at, keep = self._rows(x_offsets, y_offset)
        return tl.load(at, mask=keep, other=self._other)

    def scatter(self, value: Any, x_offsets: Any, y_offset: Any) -> None:
        """Stores rows at `x_offsets`, from column `y_offset` on."""
        at, keep = self._rows(x_offsets, y_offset)
        tl.store(at, value, mask=keep)


def _atomic(name: str) -> Callable[..., None]:
    def call(self: Descriptor, offsets: Any, value: Any) -> None:
        at, keep = self._at(offsets)
        getattr(tl, name)(at, value, mask=keep)

    call.__doc__ = f"`tl.{name}` of the part of the block at `offsets` that is inside the tensor."
    return call


for _name in ("atomic_add", "atomic_min", "atomic_max", "atomic_and", "atomic_or", "atomic_xor"):
    setattr(Descriptor, _name, _atomic(_name))


def _require_aligned(base: Any, strides: list[Any], size: int) -> None:
    """Checks what the hardware asks of a descriptor.

    Raises:
        ValueError: it does not hold.
    """
    for recording in builder().recordings:
        recording.opaque = True
    if (base.handle.data % _ALIGNED).any():
        raise ValueError("the base of a tensor descriptor is not aligned to 16 bytes")
    if any((stride.handle.data * size % _ALIGNED).any() for stride in strides[:-1]):
        raise ValueError("a stride of a tensor descriptor is no multiple of 16 bytes")
    if (strides[-1].handle.data != 1).any():
        raise ValueError("the last axis of a tensor descriptor is not contiguous")
