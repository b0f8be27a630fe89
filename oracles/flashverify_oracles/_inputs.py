"""One attention problem in float64: grouped by key head, freed of non-finite values, cut into tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from flashverify_oracles._checks import all_finite, check_dropout, check_number, check_softcap, check_tensor, finite
from flashverify_oracles._pairs import Pairs, PairSource, make_pairs

# Scores held at once, over all heads: 32 MiB for each float64 temporary.
_TILE_SCORES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Options:
    """What makes logits and weights of the products of q and k, as given by the caller; see `float64.forward`."""

    scale: float
    visible: PairSource | None = None
    softcap: float | None = None
    biases: Sequence[PairSource] = ()
    sink: Tensor | None = None
    keep: PairSource | None = None
    dropout: float = 0.0
    tile: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CheckedInputs:
    """Inputs of one attention problem, ready to be streamed.

    With `G = B * Hkv` key heads and `g = Hq // Hkv` query heads for each, query heads are folded beside the rows, so a matrix product
    over a tile sums a gradient over its group. Non-finite inputs are replaced by 0 and flagged; no flag means no such value. Those
    of a bias are replaced tile by tile, and found by `_taint.py`.

    Attributes:
        q, k, v: `[G, g, Sq, D]`, `[G, Sk, D]`, `[G, Sk, Dv]` float64, finite.
        scale: factor of the products.
        softcap: `t -> softcap * tanh(t / softcap)`, or None.
        biases: added to the logits.
        sink: `[G, g, 1, 1]` float64, finite; or None.
        visible, keep: masks, or None where everything is visible or kept.
        share: `1 - dropout`.
        heads: `(B, Hkv, g)`.
        tile: `(rows, keys)` of one tile.
        bad_q, bad_k: `[G, g, Sq, 1]`, `[G, Sk, 1]` bool, the vectors that hold a non-finite value, or None.
        bad_v: `[G, Sk, Dv]` bool, the non-finite elements of V, or None.
        bad_sink: `[G, g, 1, 1]` bool, the heads whose sink is not finite, or None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    softcap: float | None
    biases: tuple[Pairs, ...]
    sink: Tensor | None
    visible: Pairs | None
    keep: Pairs | None
    share: float
    heads: tuple[int, int, int]
    tile: tuple[int, int]
    bad_q: Tensor | None
    bad_k: Tensor | None
    bad_v: Tensor | None
    bad_sink: Tensor | None

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

    def unfold(self, x: Tensor, rows: slice, keys: slice) -> Tensor:
        """A tile `x` `[G, g * rows, keys]` seen as `[B, Hkv, g, rows, keys]`."""
        return x.view(*self.heads, rows.stop - rows.start, keys.stop - keys.start)

    def products(self, q: Tensor, keys: slice) -> Tensor:
        """`scale * q k^T` `[G, g * rows, keys]` of the folded rows `q`, natural units."""
        return torch.bmm(q, self.k[:, keys].mT).mul_(self.scale)

    def logits(self, t: Tensor, rows: slice, keys: slice) -> Tensor:
        """The products `t` made logits in place: capped, biased, -inf where the key is invisible."""
        if self.softcap is not None:
            t.div_(self.softcap).tanh_().mul_(self.softcap)
        for bias in self.biases:
            self.unfold(t, rows, keys).add_(finite(bias.tile(rows, keys))[0])
        if self.visible is not None:
            self.unfold(t, rows, keys).masked_fill_(~self.visible.tile(rows, keys), -math.inf)
        return t

    def slope(self, t: Tensor) -> Tensor | None:
        """Derivative of the capped products by the products `t`, without cancellation; None where there is no cap.

        `1 - tanh(x)^2 = 4 e / (1 + e)^2` with `e = exp(-2 |x|)`.
        """
        if self.softcap is None:
            return None
        e = (t / self.softcap).abs_().mul_(-2.0).exp_()
        return e.mul(4.0).div_(e.add_(1.0).square_())

    def dropped(self, rows: slice, keys: slice) -> Tensor | None:
        """The pairs of one tile that dropout removes, bool `[B, Hkv, g, rows, keys]`; None for none."""
        if self.keep is None:
            return None
        shape = (*self.heads, rows.stop - rows.start, keys.stop - keys.start)
        return (~self.keep.tile(rows, keys)).expand(shape)


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Arguments of the oracle, the problem that was made of them and the logits of a single tile, so that a backward need not make them again."""

    q: Tensor
    k: Tensor
    v: Tensor
    options: Options
    problem: CheckedInputs
    logits: Tensor | None

    def fits(self, q: Tensor, k: Tensor, v: Tensor, options: Options) -> bool:
        """Whether these are the same objects."""
        same = q is self.q and k is self.k and v is self.v
        return same and all(getattr(options, x.name) is getattr(self.options, x.name) for x in fields(Options))


def make_inputs(q: Tensor, k: Tensor, v: Tensor, options: Options) -> CheckedInputs:
    """Check the arguments of an attention problem and convert its tensors to float64, exactly.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: shapes or devices do not belong together, or a number is out of its range.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, x, 4, None if x is q else q.device)
    B, Hq, Sq, D = q.shape
    _, Hkv, Sk, Dv = v.shape
    if tuple(k.shape) != (B, Hkv, Sk, D) or v.shape[0] != B:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"q [B, Hq, Sq, D], k [B, Hkv, Sk, D] and v [B, Hkv, Sk, Dv] must agree, got {shapes}")
    if Hq != 0 and (Hkv == 0 or Hq % Hkv):
        raise ValueError(f"the heads of q must be a multiple of the heads of k, got Hq={Hq}, Hkv={Hkv}")
    G, g = B * Hkv, Hq // Hkv if Hkv else 1
    heads, sizes, device = (B, Hkv, g), (Sq, Sk), q.device
    scale = check_number("scale", options.scale)
    visible = make_pairs("visible", options.visible, heads, sizes, device, kind="bool")
    keep = make_pairs("keep", options.keep, heads, sizes, device, kind="bool")
    if not isinstance(options.biases, Sequence):
        kind = type(options.biases).__name__
        raise TypeError(f"biases must be a sequence of tensors or callables (rows, keys), got {kind}")
    biases = (
        make_pairs(f"biases[{n}]", bias, heads, sizes, device, kind="floating", optional=False)
        for n, bias in enumerate(options.biases)
    )
    sink, bad_sink = None, None
    if options.sink is not None:
        check_tensor("sink", options.sink, (Hq,), device)
        sink, bad_sink = finite(options.sink.expand(B, Hq).reshape(G, g, 1, 1))
    (q64, bad_q), (k64, bad_k), (v64, bad_v) = all_finite(
        q.reshape(G, g, Sq, D), k.reshape(G, Sk, D), v.reshape(G, Sk, Dv)
    )
    return CheckedInputs(
        q=q64,
        k=k64,
        v=v64,
        scale=scale,
        softcap=check_softcap(options.softcap),
        biases=tuple(bias for bias in biases if bias is not None),
        sink=sink,
        visible=visible,
        keep=keep,
        share=1.0 - check_dropout(options.dropout, kept=keep is not None),
        heads=heads,
        tile=_tile(G * g, Sq, Sk) if options.tile is None else options.tile,
        bad_q=None if bad_q is None else bad_q.any(-1, keepdim=True),
        bad_k=None if bad_k is None else bad_k.any(-1, keepdim=True),
        bad_v=bad_v,
        bad_sink=bad_sink,
    )


def _tile(heads: int, Sq: int, Sk: int) -> tuple[int, int]:
    if heads * Sq * Sk <= _TILE_SCORES:
        return max(Sq, 1), max(Sk, 1)
    keys = min(Sk, max(128, _TILE_SCORES // (64 * heads)))
    return min(Sq, max(16, _TILE_SCORES // (heads * keys))), keys


def _slices(size: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]
