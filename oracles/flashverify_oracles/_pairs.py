"""Masks, biases and buckets: one value for each (row, key) pair, held as a tensor or asked for tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from flashverify_oracles._checks import broadcasts

PairSource = Tensor | Callable[[slice, slice], Tensor]
Kind = Literal["bool", "floating", "integer"]
_ARTICLE: dict[Kind, str] = {"bool": "a bool", "floating": "a floating", "integer": "an integer"}


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """A tensor that broadcasts to `[B, Hq, Sq, Sk]`, or a callable `(rows, keys)` that returns such a tensor for its tile.

    Attributes:
        name: of the argument, for messages.
        source: as given by the caller; a tensor was checked when this was made.
        heads: `(B, Hkv, g)` with `Hq = Hkv * g`.
        device: of every tensor.
        kind: of the dtype of the values.
    """

    name: str
    source: PairSource
    heads: tuple[int, int, int]
    device: torch.device
    kind: Kind

    def tile(self, rows: slice, keys: slice) -> Tensor:
        """The values of one tile, in their own dtype, broadcastable to `[B, Hkv, g, rows, keys]`."""
        B, Hkv, g = self.heads
        if isinstance(self.source, Tensor):
            x = self.source
            if x.shape[-2:] != (rows.stop - rows.start, keys.stop - keys.start):  # equal: the tile is all of it
                x = x[tile_index(x.shape, rows, keys)]
        else:
            x = self.source(rows, keys)
            self.check(x, (B, Hkv * g, rows.stop - rows.start, keys.stop - keys.start))
        if x.ndim < 3 or x.shape[-3] == 1:
            return x.unsqueeze(-3) if x.ndim == 4 else x
        return x.reshape(*x.shape[:-3], Hkv, g, *x.shape[-2:])

    def check(self, x: object, shape: tuple[int, ...]) -> None:
        """Refuse anything but a tensor of the right kind of dtype on the device that broadcasts to `shape`."""
        if not isinstance(x, Tensor):
            raise TypeError(f"{self.name} must give {_ARTICLE[self.kind]} tensor, got {x!r} (type={type(x).__name__})")
        if kind_of(x) != self.kind:
            wanted = "dtype torch.bool" if self.kind == "bool" else f"{_ARTICLE[self.kind]} dtype"
            raise TypeError(f"{self.name} must have {wanted}, got {x.dtype}")
        if x.device != self.device:
            raise ValueError(f"{self.name} must be on the device of q, {self.device}, got {x.device}")
        if not broadcasts(tuple(x.shape), shape):
            raise ValueError(f"{self.name} must broadcast to {shape}, got {tuple(x.shape)}")


def make_pairs(
    name: str,
    source: object,
    heads: tuple[int, int, int],
    sizes: tuple[int, int],
    device: torch.device,
    *,
    kind: Kind,
    optional: bool = True,
) -> Pairs | None:
    """Check a mask, a bias or buckets for `sizes` `(Sq, Sk)`; None stays None where it is `optional`.

    Raises:
        TypeError: it is neither a tensor of the right kind of dtype nor callable.
        ValueError: a tensor does not broadcast, or is on another device.
    """
    if source is None and optional:
        return None
    if not isinstance(source, Tensor) and not callable(source):
        kinds = f"{'None, ' if optional else ''}{_ARTICLE[kind]} tensor or a callable (rows, keys)"
        raise TypeError(f"{name} must be {kinds}, got {source!r} (type={type(source).__name__})")
    pairs = Pairs(name, source, heads, device, kind)
    if isinstance(source, Tensor):
        pairs.check(source, (heads[0], heads[1] * heads[2], *sizes))
    return pairs


def tile_index(shape: Sequence[int], rows: slice, keys: slice) -> tuple[slice, ...]:
    """Index of one tile in a tensor of this shape, of up to four dimensions, that broadcasts to `[B, Hq, Sq, Sk]`."""
    whole = slice(None)
    cut = (whole, whole, rows, keys)[4 - len(shape) :]
    return tuple([whole if size == 1 else part for size, part in zip(shape, cut, strict=True)])


def kind_of(x: Tensor) -> Kind | None:
    """Kind of the dtype of `x`; None for a complex one."""
    if x.dtype == torch.bool:
        return "bool"
    if x.is_floating_point():
        return "floating"
    return None if x.is_complex() else "integer"
