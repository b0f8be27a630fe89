"""Tensors as exact numbers: integers times a power of two, and mpf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import torch
from mpmath import mp

Array = npt.NDArray[Any]
PairSource = torch.Tensor | Callable[[slice, slice], torch.Tensor]


class Numbers:
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

    def dots(self, here: tuple[int, int, int], other: Numbers, there: tuple[int, int, list[int]]) -> list[Any]:
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


def bool_pairs(name: str, source: PairSource | None, shape: tuple[int, int, int, int]) -> npt.NDArray[np.bool_]:
    """A mask over all pairs, expanded to `shape`; all true for None."""
    if source is None:
        return np.ones(shape, dtype=np.bool_)
    return _expand(name, source, shape, bool)


def sum_of_pairs(name: str, sources: Any, shape: tuple[int, int, int, int]) -> Array | None:
    """Exact sum of biases over all pairs, mpf of `shape`, NaN where a term is not finite; None if there is no term."""
    terms = [_expand(f"{name}[{n}]", source, shape, float) for n, source in enumerate(sources)]
    if not terms:
        return None
    total = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        numbers = [float(term[index]) for term in terms]
        total[index] = mp.zero if np.isfinite(numbers).all() else mp.nan
        for number in numbers if total[index] == 0 else ():
            total[index] = mp.fadd(total[index], number, exact=True)
    return total


def bucket_pairs(name: str, source: PairSource, shape: tuple[int, int, int, int], count: int) -> npt.NDArray[Any]:
    """Integers in [0, count) over all pairs, expanded to `shape`."""
    numbers = _expand(name, source, shape, int)
    for number in np.unique(numbers).tolist():
        if not 0 <= number < count:
            raise ValueError(f"{name} must be in [0, {count}), got {number}")
    return numbers


def floating(name: str, x: object, ndim: int) -> tuple[int, ...]:
    """Shape of a floating tensor of `ndim` dimensions; refuses anything else."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        raise TypeError(f"{name} must be a floating tensor, got {getattr(x, 'dtype', type(x).__name__)}")
    if x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got {tuple(x.shape)}")
    return tuple(x.shape)


def _expand(name: str, source: Any, shape: tuple[int, int, int, int], kind: type) -> npt.NDArray[Any]:
    """All pairs of a mask (`kind` bool), of buckets (int) or of a bias (float, as float64)."""
    x = source if isinstance(source, torch.Tensor) else source(slice(0, shape[2]), slice(0, shape[3]))
    if not isinstance(x, torch.Tensor) or x.is_complex() or type(torch.zeros((), dtype=x.dtype).item()) is not kind:
        wanted = {bool: "dtype torch.bool", int: "an integer dtype", float: "a floating dtype"}[kind]
        raise TypeError(f"{name} must give a tensor of {wanted}, got {getattr(x, 'dtype', type(x))}")
    values = x.detach().cpu()
    try:
        return np.broadcast_to((values.double() if kind is float else values).numpy(), shape)
    except ValueError:
        raise ValueError(f"{name} must broadcast to {shape}, got {tuple(x.shape)}") from None
