"""Rows of a problem as matrices: what every bound is computed from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from flashverify.numerics.quantised import QuantisedErrors

__all__ = ["MASKED", "Chunk", "Parts", "finite", "finite_rows", "logits_of"]

# Stands for the logit of an invisible pair. Finite, so that no inf - inf arises; below every real logit (|q| |k| d scale < 1e120), so that every
# weight taken from it is an exact zero, whatever error is added to it.
MASKED = -1e300


def finite(x: Tensor) -> Tensor:
    """bool: what `torch.isfinite` says, in two operations of its four."""
    return x.abs() < torch.inf


def finite_rows(x: Tensor) -> Tensor:
    """`[..., 1]` bool: is every element along the last axis finite?"""
    return finite(x.sum(-1, keepdim=True))


@dataclass(slots=True, kw_only=True, eq=False)
class Parts:
    """What a logit consists of where it is more than `t = scale q k`: `S = cap tanh(t / cap) + biases`; float64 `[G, M, N]`.

    Attributes:
        size: `|t|`.
        capped: `|cap tanh(t / cap)|`, or `size` again.
        cap: The softcap, or None.
        tanh: `|tanh(t / cap)|`, or None.
        gain: `1 - tanh^2`, the derivative of the capped logit, or None.
        bias: Sum of the magnitudes of the biases, 0 where invisible, or None; `biases` their number.
        rise: `[G, M, 1]` sum of the largest positive values of the biases.
    """

    size: Tensor
    capped: Tensor
    cap: float | None
    tanh: Tensor | None
    gain: Tensor | None
    bias: Tensor | None
    biases: int
    rise: Tensor


def logits_of(
    t: Tensor, cap: float | None, biases: Sequence[Tensor], visible: Tensor | None
) -> tuple[Tensor, Parts, Tensor]:
    """Logits of `t = scale q k` with a softcap and biases.

    Args:
        t: `[G, M, N]` float64, finite.
        cap: The softcap, or None.
        biases: `[G, M, N]` each, any floating dtype.
        visible: `[G, M, N]` bool, or None when all pairs are.

    Returns:
        S with what is not finite in a bias taken as 0, its parts, and the rows `[G, M, 1]` that see such a bias.
    """
    size, S, tanh, gain, bias = t.abs(), t, None, None, None
    if cap is not None:
        tanh = torch.tanh(t / cap)
        gain, S, tanh = torch.cosh(t / cap).pow_(-2), cap * tanh, tanh.abs_()
    capped, rise = size if cap is None else S.abs(), torch.zeros_like(t.sum(-1, keepdim=True))
    bad = torch.zeros_like(rise, dtype=torch.bool)
    for term in biases:
        b = term.double()
        b = b if visible is None else torch.where(visible, b, 0.0)
        bad = bad | ~torch.isfinite(b).all(-1, keepdim=True)
        b = torch.where(torch.isfinite(b), b, 0.0)
        S, bias = S + b, b.abs() if bias is None else bias.add_(b.abs())
        rise = rise + (b.amax(-1, keepdim=True).clamp(min=0.0) if b.shape[-1] else 0.0)
    parts = Parts(size=size, capped=capped, cap=cap, tanh=tanh, gain=gain, bias=bias, biases=len(biases), rise=rise)
    return S, parts, bad


@dataclass(slots=True, kw_only=True, eq=False)
class Chunk:
    """Rows of all query heads of each kv head, as `[G, M, N]` matrices: G = B Hkv, M = group times rows, N = Sk; float64.

    Attributes:
        rows: The query rows.
        q, k, v: Operands; zero where no visible pair reads them.
        aq, ak, av: Their magnitudes; `vv` is V and V^2 side by side.
        vis: Visible pairs as 0/1, or None when all are; `pairs` the same as bool.
        n: `[G, M, 1]` visible keys a row.
        seen: `[G, N, 1]` bool, keys that a row sees.
        empty: `[G, M, 1]` bool, rows that see nothing.
        A: `sum |q| |k|`, 0 where invisible.
        S: Logits, `MASKED` where invisible; `abs_s` their magnitudes.
        m: `[G, M, 1]` largest logit, of the sink too, 0 in empty rows.
        bad: `[G, M, 1]` bool, rows whose logits see a non-finite input.
        bad_v: `[G, M, Dv]` bool or None, outputs that see a non-finite V.
        top, low: `[G, 1, Dv]` largest and smallest V of the keys that any row sees, times `factor`; -inf and inf where there is none. With a
            sink or dropout 0 lies between them.
        hidden_v: `[G, N, 1]` largest finite |V| of the keys that no row sees, times `factor`, 0 for the others, or None.
        parts: Of the logits, where there is a softcap or a bias.
        sink: `[G, M, 1]` the sink's logit, or None.
        kept: `[G, M, N]` visible pairs that dropout keeps as 0/1, or None without dropout.
        factor: `1 / (1 - p)`, 1 without dropout.
        small_q, small_k, small_v: What of each element of an operand may be flushed to zero, or None where it is nothing.
        quantised: What the scales of a quantised K and V add, or None.
        cache: Errors of its logits and terms of the last gradient, for a second look at the same ones.
    """

    rows: slice
    q: Tensor
    k: Tensor
    v: Tensor
    aq: Tensor
    ak: Tensor
    av: Tensor
    vv: Tensor
    vis: Tensor | None
    pairs: Tensor | None
    n: Tensor
    seen: Tensor
    empty: Tensor
    A: Tensor
    S: Tensor
    abs_s: Tensor
    m: Tensor
    bad: Tensor
    bad_v: Tensor | None
    top: Tensor
    low: Tensor
    hidden_v: Tensor | None
    parts: Parts | None = None
    sink: Tensor | None = None
    kept: Tensor | None = None
    factor: float = 1.0
    small_q: Tensor | None = None
    small_k: Tensor | None = None
    small_v: Tensor | None = None
    quantised: "QuantisedErrors | None" = None
    cache: dict[str, object] = field(default_factory=dict)

    def mask(self, x: Tensor) -> Tensor:
        """Zero the invisible pairs of `x` `[G, M, N]`."""
        return x if self.vis is None else x * self.vis

    def add_visible(self, x: Tensor, value: float) -> Tensor:
        """Add `value` to the visible pairs of `x` `[G, M, N]`, in place."""
        return x.add_(value) if self.vis is None else x.add_(self.vis, alpha=value)

    def over_keys(self, x: Tensor) -> Tensor:
        """`[G, M, C]`: sum of `x` `[G, N, C]` over the keys that each row sees."""
        return x.sum(-2, keepdim=True).expand(-1, self.n.shape[1], -1) if self.vis is None else self.vis @ x

    def over_rows(self, x: Tensor) -> Tensor:
        """`[G, N, C]`: sum of `x` `[G, M, C]` over the rows that see each key."""
        return x.sum(-2, keepdim=True).expand(-1, self.k.shape[1], -1) if self.vis is None else self.vis.mT @ x

    def over_kept_keys(self, x: Tensor) -> Tensor:
        """`over_keys`, without the dropped keys and times the dropout factor."""
        return self.over_keys(x) if self.kept is None else (self.kept @ x).mul_(self.factor)

    def over_kept_rows(self, x: Tensor) -> Tensor:
        """`over_rows`, without the rows that drop the key and times the dropout factor."""
        return self.over_rows(x) if self.kept is None else (self.kept.mT @ x).mul_(self.factor)

    @property
    def live(self) -> Tensor:
        """`[G, M, 1]` bool, rows that see a key; the chunk keeps them."""
        known = self.cache.get("live")
        if not isinstance(known, Tensor):
            known = self.cache["live"] = ~self.empty
        return known

    @property
    def terms(self) -> Tensor:
        """`[G, M, 1]`: terms of a row sum, the sink among them."""
        return self.n if self.sink is None else self.n + 1.0
