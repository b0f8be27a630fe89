"""Inputs of the exact oracle: every number that is known without rounding, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import torch
from mpmath import mp

Array = npt.NDArray[Any]
Mask = torch.Tensor | Callable[[slice, slice], torch.Tensor] | None


@dataclass(frozen=True, slots=True)
class Row:
    """What one query row knows exactly; a list runs over the visible keys, and an unknown is NaN.

    Attributes:
        place: `(batch, query head, row)`.
        keys: indices of the visible keys.
        top: largest logit.
        gaps: logit - top.
        lags: logit - given lse; None where P is the softmax.
        dp: dO . V.
        given_delta: dO . O when O is given, else None.
        dlse: gradient of the log-sum-exp.
    """

    place: tuple[int, int, int]
    keys: list[int]
    top: Any
    gaps: list[Any]
    lags: list[Any] | None
    dp: list[Any]
    given_delta: Any
    dlse: Any


class Inputs:
    """The inputs as exact numbers."""

    def __init__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        do: torch.Tensor | None,
        scale: float,
        dlse: torch.Tensor | None,
        given_o: torch.Tensor | None,
        given_lse: torch.Tensor | None,
    ) -> None:
        if not math.isfinite(scale):
            raise ValueError(f"scale must be finite, got {scale!r}")
        B, Hq, Sq, D = _shape("q", q, 4)
        _, Hkv, Sk, Dv = _shape("v", v, 4)
        _shape("k", k, 4)
        if tuple(k.shape) != (B, Hkv, Sk, D) or v.shape[0] != B:
            shapes = f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
            raise ValueError(f"q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv] must agree, got {shapes}")
        if Hq and (not Hkv or Hq % Hkv):
            raise ValueError(f"Hq must be a multiple of Hkv, got Hq={Hq}, Hkv={Hkv}")
        optional = {"do": do, "given_o": given_o, "dlse": dlse, "given_lse": given_lse}
        for name, x in optional.items():
            wanted = (B, Hq, Sq, Dv) if name in ("do", "given_o") else (B, Hq, Sq)
            if x is not None and _shape(name, x, len(wanted)) != wanted:
                raise ValueError(f"{name} must have the shape {wanted}, got {tuple(x.shape)}")
            if x is not None and do is None:
                raise ValueError(f"{name} is given without do: it belongs to the gradients")
        self.sizes = (B, Hq, Hkv, Sq, Sk, D, Dv)
        self.group = Hq // Hkv if Hkv else 1
        self.scale = mp.mpf(float(scale))
        self.q, self.k, self.v = _Numbers(q), _Numbers(k), _Numbers(v)
        self.do, self.dlse, self.given_o, self.given_lse = (
            None if x is None else _Numbers(x) for x in (do, dlse, given_o, given_lse)
        )

    def rows(self, visible: Mask) -> list[Row]:
        """Every row that sees a key."""
        B, Hq, _, Sq, Sk, _, _ = self.sizes
        seen = _seen(visible, B, Hq, Sq, Sk)
        places = [(b, h, i) for b, h, i in np.ndindex(B, Hq, Sq) if seen[b, h, i].any()]
        return [self._row(b, h, i, np.flatnonzero(seen[b, h, i]).tolist()) for b, h, i in places]

    def _row(self, b: int, h: int, i: int, keys: list[int]) -> Row:
        here, there = (b, h, i), (b, h // self.group, keys)
        logits = [mp.fmul(self.scale, s, exact=True) for s in self.q.dots(here, self.k, there)]
        top = max(logits) if not any(map(mpmath.isnan, logits)) else mp.nan
        gaps = [mp.fsub(s, top, exact=True) for s in logits]
        lags, dp, given_delta = None, [], None
        if self.do is not None:
            dp = self.do.dots(here, self.v, there)
            if any(map(mpmath.isnan, dp)):
                dp = [mp.nan] * len(dp)  # taint is counted by rows
            if self.given_lse is not None:
                level = self.given_lse.number(here)
                lags = [mp.fsub(s, level, exact=True) for s in logits]
                if level == -mp.inf:
                    lags = [-mp.inf] * len(keys)
                elif not mpmath.isfinite(level):
                    lags = [mp.nan] * len(keys)
            if self.given_o is not None:
                given_delta = self.do.dots(here, self.given_o, (b, h, [i]))[0]
        dlse = mp.zero if self.dlse is None else self.dlse.number(here)
        return Row(here, keys, top, gaps, lags, dp, given_delta, dlse if mpmath.isfinite(dlse) else mp.nan)


class _Numbers:
    """A tensor as integers times one power of two, and as mpf."""

    def __init__(self, x: torch.Tensor) -> None:
        values = x.detach().to(dtype=torch.float64, device="cpu").numpy()
        self.finite = np.isfinite(values)
        fraction, exponent = np.frexp(np.where(self.finite, values, 0.0))
        mantissa = np.ldexp(fraction, 53).astype(np.int64)
        self.exponent = int(exponent[mantissa != 0].min(initial=0)) - 53
        shift = np.where(mantissa != 0, exponent - 53 - self.exponent, 0)
        self.integers = mantissa.astype(object) << shift.astype(object)
        self.values = values
        self.mpf = np.empty(values.shape, dtype=object)
        for index in np.ndindex(values.shape):  # nothing is lost: every precision used has more than 53 bits
            self.mpf[index] = mp.mpf(float(values[index])) if self.finite[index] else mp.nan

    def number(self, place: tuple[int, int, int]) -> Any:
        """One element, infinities included."""
        return mp.mpf(float(self.values[place]))

    def dots(self, here: tuple[int, int, int], other: _Numbers, there: tuple[int, int, list[int]]) -> list[Any]:
        """Exact dot products of the vector `here` with the vectors `there`; NaN where one of them is not finite."""
        exponent = self.exponent + other.exponent
        mine, ok = self.integers[here].tolist(), bool(self.finite[here].all())
        b, h, indices = there
        products = []
        for j in indices:
            if ok and other.finite[b, h, j].all():
                total = sum(x * y for x, y in zip(mine, other.integers[b, h, j].tolist(), strict=True))
                products.append(mp.ldexp(mp.make_mpf(mpmath.libmp.from_int(total)), exponent))
            else:
                products.append(mp.nan)
        return products


def _seen(visible: Mask, B: int, Hq: int, Sq: int, Sk: int) -> npt.NDArray[np.bool_]:
    if visible is None:
        return np.ones((B, Hq, Sq, Sk), dtype=np.bool_)
    mask = visible if isinstance(visible, torch.Tensor) else visible(slice(0, Sq), slice(0, Sk))
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"visible must give a tensor of dtype torch.bool, got {getattr(mask, 'dtype', type(mask))}")
    try:
        return np.broadcast_to(mask.cpu().numpy(), (B, Hq, Sq, Sk))
    except ValueError:
        raise ValueError(f"visible must broadcast to {(B, Hq, Sq, Sk)}, got {tuple(mask.shape)}") from None


def _shape(name: str, x: object, ndim: int) -> tuple[int, ...]:
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        raise TypeError(f"{name} must be a floating tensor, got {getattr(x, 'dtype', type(x).__name__)}")
    if x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got {tuple(x.shape)}")
    return tuple(x.shape)
