"""A problem as the oracles take it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Inputs", "Pairs"]

Pairs = Any
"""A tensor that broadcasts to `[B, Hq, Sq, Sk]`, or a function of (rows, keys), two slices, that gives it for a tile."""
_DENSE_PAIRS = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A problem as the oracles take it.

    Args:
        q: `[B, Hq, Sq, D]`, finite, any float dtype; k `[B, Hkv, Sk, D]`; v `[B, Hkv, Sk, Dv]`.
        scale: of the logits, natural units.
        visible: None, a bool tensor that broadcasts to `[B, Hq, Sq, Sk]`, or a callable (rows, keys) -> such a tensor.
        do: `[B, Hq, Sq, Dv]`, or None for the forward alone.
        dlse: `[B, Hq, Sq]`, gradient of the natural LSE, or None.
        softcap: the scaled products become softcap * tanh(product / softcap).
        biases: added to the logits, natural units.
        bias_shape: of the gradient of a bias, `[B or 1, Hq or 1, Sq, Sk]`; None where none is asked for.
        relative_buckets: which entry of its head's table each pair reads, integers; None without a relative bias, which is one of `biases`.
        bucket_count: entries of the table of one head, or None.
        sink: `[Hq]`, one more logit in every row that sees a key.
        keep: the pairs that dropout keeps, bool.
        dropout: its probability.
        k_scale: of a quantised k, whose values `k` holds: the scale of each key, `[B, Hkv, Sk, 1]`; None of values. v_scale likewise.
        q_scale: of a q in codes the scale of each row, `[B, Hq, Sq, 1]`; else None.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float
    visible: Any = None
    do: torch.Tensor | None = None
    dlse: torch.Tensor | None = None
    softcap: float | None = None
    biases: tuple[Pairs, ...] = ()
    bias_shape: tuple[int, ...] | None = None
    relative_buckets: Pairs = None
    bucket_count: int | None = None
    sink: torch.Tensor | None = None
    keep: Pairs = None
    dropout: float = 0.0
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    q_scale: torch.Tensor | None = None

    def dense(self) -> Inputs:
        """The same with every function of pairs evaluated once, where the pairs are few enough to be held."""
        rows, keys = self.q.shape[2], self.k.shape[2]
        if rows * keys * self.q.shape[0] * self.q.shape[1] > _DENSE_PAIRS:
            return self

        def evaluated(pairs: Pairs) -> Pairs:
            return pairs(slice(0, rows), slice(0, keys)) if callable(pairs) else pairs

        return replace(
            self,
            visible=evaluated(self.visible),
            biases=tuple(evaluated(bias) for bias in self.biases),
            keep=evaluated(self.keep),
            relative_buckets=evaluated(self.relative_buckets),
        )

    def without_learned(self) -> Inputs:
        """The same, asked for the gradients of q, k and v and no learned tensor."""
        return replace(self, bias_shape=None, relative_buckets=None, bucket_count=None)

    def learned(self) -> dict[str, Any]:
        """What the oracles' backward takes by name to make the gradients of learned tensors."""
        return {name: getattr(self, name) for name in ("bias_shape", "relative_buckets", "bucket_count")}

    def scales(self) -> dict[str, Any]:
        """What the bounds alone take by name: the scales of quantised operands."""
        return {
            "k_scale": _fitting(self.k_scale, self.k),
            "v_scale": _fitting(self.v_scale, self.v),
            "q_scale": _fitting(self.q_scale, self.q),
        }

    def problem(self) -> dict[str, Any]:
        """What oracles and bounds take by name, beside q, k and v."""
        return {
            name: getattr(self, name) for name in ("scale", "visible", "softcap", "biases", "sink", "keep", "dropout")
        }


def _fitting(scale: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """The scales of the keys or rows of `x`; heads that read one in common have its scales, and what has none the largest of its head."""
    import torch

    if scale is None or scale.shape[:3] == x.shape[:3]:
        return scale
    batch, heads, length = x.shape[:3]
    if heads > scale.shape[1] > 0:
        scale = scale.repeat_interleave(heads // scale.shape[1], 1)
    found = x.new_zeros(batch, heads, length, 1, dtype=torch.float64)
    if scale.numel():
        found += scale[:batch, :heads].amax(2, keepdim=True)
    kept = min(length, scale.shape[2])
    found[:, :, :kept] = scale[:batch, :heads, :kept]
    return found
