"""Inputs of the exact oracle: every number that is known without rounding, row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
from mpmath import mp

from flashverify_oracles._exact_numbers import (
    Array,
    Numbers,
    PairSource,
    bool_pairs,
    bucket_pairs,
    floating,
    sum_of_pairs,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Row:
    """What one query row knows exactly; a list runs over the visible keys, and an unknown is NaN.

    Attributes:
        place: `(batch, query head, row)`.
        keys: indices of the visible keys.
        kept: positions in `keys` of those that dropout keeps.
        products: scale * q . k.
        bias: sum of the biases, or None for none.
        sink: logit of the sink, or None.
        level: given lse, infinities included; None where P is the softmax.
        dp: dO . V of the kept keys, 0 for the others: dP times `1 - dropout`.
        given_delta: dO . O when O is given, else None.
        dlse: gradient of the log-sum-exp.
    """

    place: tuple[int, int, int]
    keys: list[int]
    kept: list[int]
    products: list[Any]
    bias: list[Any] | None
    sink: Any
    level: Any
    dp: list[Any]
    given_delta: Any
    dlse: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What the logits and the weights have beyond scale and visibility; see `exact.exact_attention`."""

    softcap: float | None
    biases: Any
    sink: torch.Tensor | None
    keep: PairSource | None
    dropout: float
    bias_shape: tuple[int, ...] | None
    relative_buckets: PairSource | None
    bucket_count: int | None


class Inputs:
    """The inputs as exact numbers."""

    def __init__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        do: torch.Tensor | None,
        scale: float,
        features: Features,
        dlse: torch.Tensor | None,
        given_o: torch.Tensor | None,
        given_lse: torch.Tensor | None,
    ) -> None:
        if not math.isfinite(scale):
            raise ValueError(f"scale must be finite, got {scale!r}")
        B, Hq, Sq, D = floating("q", q, 4)
        _, Hkv, Sk, Dv = floating("v", v, 4)
        floating("k", k, 4)
        if tuple(k.shape) != (B, Hkv, Sk, D) or v.shape[0] != B:
            shapes = f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
            raise ValueError(f"q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv] must agree, got {shapes}")
        if Hq and (not Hkv or Hq % Hkv):
            raise ValueError(f"Hq must be a multiple of Hkv, got Hq={Hq}, Hkv={Hkv}")
        optional = {"do": do, "given_o": given_o, "dlse": dlse, "given_lse": given_lse}
        for name, x in optional.items():
            wanted = (B, Hq, Sq, Dv) if name in ("do", "given_o") else (B, Hq, Sq)
            if x is not None and floating(name, x, len(wanted)) != wanted:
                raise ValueError(f"{name} must have the shape {wanted}, got {tuple(x.shape)}")
            if x is not None and do is None:
                raise ValueError(f"{name} is given without do: it belongs to the gradients")
        self.sizes = (B, Hq, Hkv, Sq, Sk, D, Dv)
        self.group = Hq // Hkv if Hkv else 1
        self.scale = mp.mpf(float(scale))
        self.q, self.k, self.v = Numbers(q), Numbers(k), Numbers(v)
        self.do, self.dlse, self.given_o, self.given_lse = (
            None if x is None else Numbers(x) for x in (do, dlse, given_o, given_lse)
        )
        self._take(features)

    def _take(self, features: Features) -> None:
        B, Hq, _, Sq, Sk, _, _ = self.sizes
        softcap, dropout, sink, shape = features.softcap, features.dropout, features.sink, features.bias_shape
        if softcap is not None and not 0.0 <= softcap < math.inf:
            raise ValueError(f"softcap must be finite and positive, or 0 or None for no cap, got {softcap!r}")
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
        if dropout and features.keep is None:
            raise ValueError(f"keep must be given with dropout={dropout!r}")
        if sink is not None and floating("sink", sink, 1) != (Hq,):
            raise ValueError(f"sink must have the shape {(Hq,)}, got {tuple(sink.shape)}")
        if shape is not None and self.do is None:
            raise ValueError("bias_shape is given without do: it belongs to the gradients")
        self.pairs = (B, Hq, Sq, Sk)
        self.softcap = mp.mpf(float(softcap)) if softcap else None
        self.share = mp.fsub(1, float(dropout), exact=True)
        self.sink = None if sink is None else Numbers(sink)
        self.bias = sum_of_pairs("biases", features.biases, self.pairs)
        self.keep = bool_pairs("keep", features.keep, self.pairs)
        self._take_buckets(features.relative_buckets, features.bucket_count)
        # Element of dbias that a pair is summed into.
        self.bias_shape = shape
        self.slots: Array | None = None
        if shape is not None:
            try:
                self.slots = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), self.pairs)
            except ValueError:
                raise ValueError(f"bias_shape must broadcast to {self.pairs}, got {shape}") from None

    def _take_buckets(self, source: PairSource | None, count: int | None) -> None:
        self.buckets: Array | None = None
        self.bucket_count = 0
        for name, x, other in (("relative_buckets", source, count), ("bucket_count", count, source)):
            if x is not None and other is None:
                needed = "relative_buckets and bucket_count"
                raise ValueError(f"{name} is given alone: the gradient of the table needs {needed}")
            if x is not None and self.do is None:
                raise ValueError(f"{name} is given without do: it belongs to the gradients")
        if source is None or count is None:
            return
        if type(count) is not int or count < 1:
            raise ValueError(f"bucket_count must be a positive int, got {count!r}")
        self.buckets, self.bucket_count = bucket_pairs("relative_buckets", source, self.pairs, count), count

    def rows(self, visible: PairSource | None) -> list[Row]:
        """Every row that sees a key."""
        seen = bool_pairs("visible", visible, self.pairs)
        places = [(b, h, i) for b, h, i in np.ndindex(*self.pairs[:3]) if seen[b, h, i].any()]
        return [self._row(b, h, i, np.flatnonzero(seen[b, h, i]).tolist()) for b, h, i in places]

    def _row(self, b: int, h: int, i: int, keys: list[int]) -> Row:
        here, there = (b, h, i), (b, h // self.group, keys)
        kept = [n for n, j in enumerate(keys) if self.keep[b, h, i, j]]
        products = [mp.fmul(self.scale, s, exact=True) for s in self.q.dots(here, self.k, there)]
        bias = None if self.bias is None else self.bias[b, h, i, keys].tolist()
        dp, given_delta = [], None
        if self.do is not None:
            dp = [mp.zero] * len(keys)
            for n, x in zip(kept, self.do.dots(here, self.v, (*there[:2], [keys[n] for n in kept])), strict=True):
                dp[n] = x
            if not self.do.finite[here].all() or any(map(mpmath.isnan, dp)):
                dp = [mp.nan] * len(keys)  # taint is counted by rows
            if self.given_o is not None:
                given_delta = self.do.dots(here, self.given_o, (b, h, [i]))[0]
        dlse = mp.zero if self.dlse is None else self.dlse.number(here)
        return Row(
            place=here,
            keys=keys,
            kept=kept,
            products=products,
            bias=bias,
            sink=None if self.sink is None else self.sink.mpf[h],
            level=None if self.given_lse is None else self.given_lse.number(here),
            dp=dp,
            given_delta=given_delta,
            dlse=dlse if mpmath.isfinite(dlse) else mp.nan,
        )
