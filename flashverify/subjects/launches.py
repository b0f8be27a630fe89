"""Kernel launches as data: what must be known of a launch to compile its kernel in another process."""

from __future__ import annotations

import msgspec

__all__ = ["Argument", "Descriptor", "Device", "Element", "Launch", "Opaque", "Pointer", "Real", "Record", "Value"]


class Pointer(msgspec.Struct, frozen=True, tag="pointer"):
    """A tensor.

    Args:
        dtype: of torch, such as `float16`.
        misaligned: address modulo 16, bytes.
    """

    dtype: str
    misaligned: int = 0


class Descriptor(msgspec.Struct, frozen=True, tag="descriptor"):
    """A tensor descriptor made on the host, of a contiguous tensor.

    Args:
        dtype: of torch, such as `float16`.
        block: shape of the tiles that it describes.
    """

    dtype: str
    block: tuple[int, ...]


class Value(msgspec.Struct, frozen=True, tag="value"):
    """An integer, a flag, a text, or None."""

    value: int | bool | str | None


class Real(msgspec.Struct, frozen=True, tag="real"):
    """A floating-point number as hex, so that infinities survive."""

    hex: str


class Element(msgspec.Struct, frozen=True, tag="element"):
    """A Triton type given as constexpr, such as `fp16`."""

    name: str


class Device(msgspec.Struct, frozen=True, tag="device"):
    """A device function given as constexpr."""

    module: str
    name: str


class Opaque(msgspec.Struct, frozen=True, tag="opaque"):
    """Something that cannot be rebuilt in another process."""

    text: str


class Record(msgspec.Struct, frozen=True, tag="record"):
    """A tuple, with or without names.

    Args:
        module: where its class is found; empty for a plain tuple.
        name: of its class.
        fields: in order.
    """

    module: str
    name: str
    fields: tuple[Argument, ...]


Argument = Pointer | Descriptor | Value | Real | Element | Device | Opaque | Record


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One launch.

    Args:
        label: what it belongs to, for the reader.
        module: where the kernel is found.
        kernel: its name in that module.
        arguments: by parameter name; of a runtime integer only its class matters (1, a multiple of 16, 64 bits wide).
        options: launch options such as `num_warps`.
    """

    label: str
    module: str
    kernel: str
    arguments: dict[str, Argument]
    options: dict[str, int | float | bool | str | None] = msgspec.field(default_factory=dict)
