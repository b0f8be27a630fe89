"""What a session replaces in `triton.language` for block pointers and tensor descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.interpreter.blocks import Block, BlockPointer, Descriptor, filled, plain, tensors
from flashverify.interpreter.hooks import tl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["block_accesses"]


def _make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> BlockPointer:  # noqa: ARG001
    return BlockPointer(Block(base, shape, strides, block_shape), tensors(offsets))


def _make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero"
) -> Descriptor:
    return Descriptor(base, shape, strides, block_shape, padding_option)


def _advance(original: Any) -> Callable[..., Any]:
    def advance(base: Any, offsets: Any) -> Any:
        return base.advance(offsets) if base.__class__ is BlockPointer else original(base, offsets)

    return advance


def _load(original: Any) -> Callable[..., Any]:
    def load(pointer: Any, *args: Any, **kwargs: Any) -> Any:
        if pointer.__class__ is not BlockPointer:
            return original(pointer, *args, **kwargs)
        return _load_block(original, pointer, *args, **kwargs)

    return load


def _load_block(
    original: Any,
    pointer: BlockPointer,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    **options: Any,
) -> Any:
    if plain(mask) is not None or plain(other) is not None:
        raise ValueError("`mask` and `other` of a load through a block pointer: use boundary_check and padding_option")
    at, keep = pointer.addresses(boundary_check)
    if keep is None:
        return original(at, **options)
    return original(at, mask=keep, other=filled(padding_option, pointer.block.base.dtype.element_ty), **options)


def _store(original: Any) -> Callable[..., Any]:
    def store(pointer: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if pointer.__class__ is not BlockPointer:
            return original(pointer, value, *args, **kwargs)
        return _store_block(original, pointer, value, *args, **kwargs)

    return store


def _store_block(
    original: Any, pointer: BlockPointer, value: Any, mask: Any = None, boundary_check: Any = (), **options: Any
) -> Any:
    if plain(mask) is not None:
        raise ValueError("`mask` of a store through a block pointer: use boundary_check")
    at, keep = pointer.addresses(boundary_check)
    return original(at, value, **options) if keep is None else original(at, value, mask=keep, **options)


def block_accesses() -> Iterator[tuple[Any, str, Any]]:
    """What is replaced in a language that is patched for interpreting and replaying: (owner, name, value)."""
    around: dict[str, Callable[[Any], Any]] = {"load": _load, "store": _store, "advance": _advance}
    made = {"make_block_ptr": _make_block_ptr, "make_tensor_descriptor": _make_tensor_descriptor}
    moved = {
        "load_tensor_descriptor": lambda desc, offsets: desc.load(offsets),
        "store_tensor_descriptor": lambda desc, offsets, value: desc.store(offsets, value),
    }
    for owner in (tl, tl.core):
        for name, wrap in around.items():
            if name in vars(owner):
                yield owner, name, wrap(vars(owner)[name])
        for name, value in {**made, **moved}.items():
            if name in vars(owner):
                yield owner, name, value
