"""One attention problem in float64: grouped by key head, freed of non-finite values, cut into tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Visible = Tensor | Callable[[slice, slice], Tensor] | None

# Scores held at once, over all heads: 32 MiB for each float64 temporary.
_TILE_SCORES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Inputs of one attention problem, ready to be streamed.

    With `G = B * Hkv` key heads and `g = Hq // Hkv` query heads for each, query heads are folded beside the rows, so a matrix product
    over a tile sums a gradient over its group. Non-finite inputs are replaced by 0 and flagged; no flag means no such value.

    Attributes:
        q, k, v: `[G, g, Sq, D]`, `[G, Sk, D]`, `[G, Sk, Dv]` float64, finite.
        scale: factor of the logits.
        visible: mask as given by the caller.
        heads: `(B, Hkv, g)`.
        tile: `(rows, keys)` of one tile.
        bad_q, bad_k: `[G, g, Sq, 1]`, `[G, Sk, 1]` bool, the vectors that hold a non-finite value, or None.
        bad_v: `[G, Sk, Dv]` bool, the non-finite elements of V, or None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    visible: Visible
    heads: tuple[int, int, int]
    tile: tuple[int, int]
    bad_q: Tensor | None
    bad_k: Tensor | None
    bad_v: Tensor | None

    def row_tiles(self) -> list[slice]:
        """Slices of the query rows."""
        return _slices(self.q.shape[2], self.tile[0])

    def key_tiles(self) -> list[slice]:
        """Slices of the keys."""
        return _slices(self.k.shape[1], self.tile[1])

    def fold(self, x: Tensor, rows: slice) -> Tensor:
        """The given rows of `x` `[G, g, Sq, C]` as `[G, g * rows, C]`."""
        G, g, _, C = x.shape
        return x[:, :, rows].reshape(G, g * (rows.stop - rows.start), C)

    def scores(self, q: Tensor, rows: slice, keys: slice) -> Tensor:
        """Logits `[G, g * rows, keys]` of the folded rows `q`, natural units, -inf where the key is invisible."""
        s = torch.bmm(q, self.k[:, keys].mT).mul_(self.scale)
        mask = self.mask(rows, keys)
        if mask is not None:
            s.view(*self.heads, rows.stop - rows.start, keys.stop - keys.start).masked_fill_(~mask, -math.inf)
        return s

    def mask(self, rows: slice, keys: slice) -> Tensor | None:
        """Visibility of one tile, bool, broadcastable to `[B, Hkv, g, rows, keys]`; None where every key is visible."""
        if self.visible is None:
            return None
        B, Hkv, g = self.heads
        if isinstance(self.visible, Tensor):
            mask = self.visible  # its shape was checked when the problem was made
            if mask.ndim >= 2 and mask.shape[-2] != 1:
                mask = mask[..., rows, :]
            if mask.ndim >= 1 and mask.shape[-1] != 1:
                mask = mask[..., keys]
        else:
            mask = self.visible(rows, keys)
            check_mask(mask, (B, Hkv * g, rows.stop - rows.start, keys.stop - keys.start), self.q.device)
        if mask.ndim < 3 or mask.shape[-3] == 1:
            return mask.unsqueeze(-3) if mask.ndim == 4 else mask
        return mask.reshape(*mask.shape[:-3], Hkv, g, *mask.shape[-2:])

    def rows_that_see(self, flags: Tensor) -> Tensor:
        """`[G, g, Sq, C]` bool: whether row i sees a key flagged in `flags` `[G, Sk, C]`, channel by channel."""
        G, g, Sq, _ = self.q.shape
        seen = flags.new_zeros(G, g, Sq, flags.shape[-1])
        for rows in self.row_tiles():
            for keys in self.key_tiles():
                weight = self._ones_where_visible(rows, keys)
                hit = torch.bmm(weight, flags[:, keys].double()) > 0
                seen[:, :, rows] |= hit.view(G, g, rows.stop - rows.start, flags.shape[-1])
        return seen

    def keys_seen_by(self, flags: Tensor) -> Tensor:
        """`[G, Sk, C]` bool: whether key j is seen by a row flagged in `flags` `[G, g, Sq, C]`, channel by channel."""
        G, Sk, _ = self.k.shape
        seen = flags.new_zeros(G, Sk, flags.shape[-1])
        for rows in self.row_tiles():
            for keys in self.key_tiles():
                weight = self._ones_where_visible(rows, keys)
                seen[:, keys] |= torch.bmm(weight.mT, self.fold(flags, rows).double()) > 0
        return seen

    def _ones_where_visible(self, rows: slice, keys: slice) -> Tensor:
        nr, nk = rows.stop - rows.start, keys.stop - keys.start
        ones = self.q.new_ones(*self.heads, nr, nk)
        mask = self.mask(rows, keys)
        if mask is not None:
            ones.masked_fill_(~mask, 0.0)
        return ones.view(self.q.shape[0], self.q.shape[1] * nr, nk)


def make_problem(
    q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Visible, tile: tuple[int, int] | None
) -> Problem:
    """Check the arguments of an attention problem and convert its tensors to float64, exactly.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: shapes or devices do not belong together, or `scale` is not finite.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, x, (-1, -1, -1, -1), None)
        if x.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, got {x.device}")
    B, Hq, Sq, D = q.shape
    _, Hkv, Sk, Dv = v.shape
    if tuple(k.shape) != (B, Hkv, Sk, D) or v.shape[0] != B:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"q [B, Hq, Sq, D], k [B, Hkv, Sk, D] and v [B, Hkv, Sk, Dv] must agree, got {shapes}")
    if Hq != 0 and (Hkv == 0 or Hq % Hkv):
        raise ValueError(f"the heads of q must be a multiple of the heads of k, got Hq={Hq}, Hkv={Hkv}")
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise TypeError(f"scale must be a float, got {scale!r} (type={type(scale).__name__})")
    if not math.isfinite(scale):
        raise ValueError(f"scale must be finite, got {scale!r}")
    if isinstance(visible, Tensor):
        check_mask(visible, (B, Hq, Sq, Sk), q.device)
    elif visible is not None and not callable(visible):
        kind = type(visible).__name__
        raise TypeError(
            f"visible must be None, a bool tensor or a callable (rows, keys), got {visible!r} (type={kind})"
        )
    G, g = B * Hkv, Hq // Hkv if Hkv else 1
    q64, bad_q = finite(q.reshape(G, g, Sq, D))
    k64, bad_k = finite(k.reshape(G, Sk, D))
    v64, bad_v = finite(v.reshape(G, Sk, Dv))
    return Problem(
        q=q64,
        k=k64,
        v=v64,
        scale=float(scale),
        visible=visible,
        heads=(B, Hkv, g),
        tile=_tile(G * g, Sq, Sk) if tile is None else tile,
        bad_q=None if bad_q is None else bad_q.any(-1, keepdim=True),
        bad_k=None if bad_k is None else bad_k.any(-1, keepdim=True),
        bad_v=bad_v,
    )


def finite(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """`x` as float64 with its non-finite values replaced by 0, and where they were (None if nowhere)."""
    x = x.detach().to(torch.float64)
    if math.isfinite(float(x.sum())):  # a sum that merely overflows takes the other branch, which is right too
        return x, None
    bad = ~torch.isfinite(x)
    return x.masked_fill(bad, 0.0), bad


def check_tensor(name: str, x: object, shape: tuple[int, ...], device: torch.device | None) -> None:
    """Refuse anything but a floating tensor of this shape (-1: any size) on this device (None: any)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {x!r} (type={type(x).__name__})")
    if not x.is_floating_point():
        raise TypeError(f"{name} must have a floating dtype, got {x.dtype}")
    if x.ndim != len(shape) or any(want not in (-1, have) for want, have in zip(shape, x.shape, strict=True)):
        wanted = f"{len(shape)} dimensions" if -1 in shape else f"the shape {shape}"
        raise ValueError(f"{name} must have {wanted}, got {tuple(x.shape)}")
    if device is not None and x.device != device:
        raise ValueError(f"{name} must be on the device of q, {device}, got {x.device}")


def check_mask(mask: object, shape: tuple[int, ...], device: torch.device) -> None:
    """Refuse anything but a bool tensor on `device` that broadcasts to `shape`."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"visible must give a bool tensor, got {mask!r} (type={type(mask).__name__})")
    if mask.dtype != torch.bool:
        raise TypeError(f"visible must have dtype torch.bool, got {mask.dtype}")
    if mask.device != device:
        raise ValueError(f"visible must be on the device of q, {device}, got {mask.device}")
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim > 4 or any(have not in (1, want) for have, want in pairs):
        raise ValueError(f"visible must broadcast to {shape}, got {tuple(mask.shape)}")


def _tile(heads: int, Sq: int, Sk: int) -> tuple[int, int]:
    if heads * Sq * Sk <= _TILE_SCORES:
        return max(Sq, 1), max(Sk, 1)
    keys = min(Sk, max(128, _TILE_SCORES // (64 * heads)))
    return min(Sq, max(16, _TILE_SCORES // (heads * keys))), keys


def _slices(size: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]
