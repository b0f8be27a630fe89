"""What a regime draws from: the shapes, streams and magnitudes of one case."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.values import philox
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.values.philox import Reals

__all__ = ["Fill", "ceil_log2", "exponent"]


def exponent(value: float) -> int:
    """Exponent of the power of two nearest to `value` > 0 in ratio; from the bits of `value`, no logarithm."""
    fraction, e = math.frexp(value)
    return e if fraction > 0.70703125 else e - 1


def ceil_log2(count: int) -> int:
    """Smallest e with 2**e >= count; 0 for count 0."""
    return max(count - 1, 0).bit_length()


class Fill:
    """Streams and magnitudes of one case. All arrays are float64 and exact in fp32.

    Args:
        case: the case.

    Attributes:
        shapes: of q, k, v, do as they are stored: k and v have one head where they are expanded, do has one element
            where it is.
        scale: magnitude of the scale in force; that of the default where it is zero.
        sign: of the scale, +1 for zero.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.format = FORMATS[case.dtype]
        heads = 1 if case.storage.expand else case.heads_kv
        self.shapes = {
            "q": case.shape_q,
            "k": (case.batch, heads, case.seq_k, case.dim_qk),
            "v": (case.batch, heads, case.seq_k, case.dim_v),
            "do": (1, 1, 1, 1) if case.grad.do == "expanded" else case.shape_o,
        }
        self.scale = abs(case.softmax_scale) or 1.0 / math.sqrt(case.dim_qk)
        self.sign = -1.0 if case.softmax_scale < 0 else 1.0

    def normal(self, name: str, power: int = 0) -> Reals:
        """Normal values of the tensor `name`, times 2**power."""
        values = philox.normal(self.case.values.seed, name, self.shapes[name])
        if power:
            values *= 2.0**power
        return values

    def integers(self, name: str, low: int, high: int) -> Reals:
        """Integers from `low` to `high` of the tensor `name`."""
        return philox.integers(self.case.values.seed, name, self.shapes[name], low, high)

    def signs(self, name: str) -> Reals:
        """-1 or +1 for every element of the tensor `name`."""
        return philox.signs(self.case.values.seed, f"{name}/signs", self.shapes[name])

    def per_row(self, name: str, low: int, high: int) -> Reals:
        """Integers by row of the tensor `name`: `[B, H, S, 1]`."""
        return philox.integers(self.case.values.seed, f"{name}/rows", (*self.shapes[name][:3], 1), low, high)

    def per_head(self, name: str, low: int, high: int) -> Reals:
        """Integers by head of the tensor `name`: `[B, H, 1, 1]`."""
        return philox.integers(self.case.values.seed, f"{name}/heads", (*self.shapes[name][:2], 1, 1), low, high)

    def pick(self, low: int, high: int) -> int:
        """One integer of the case."""
        return int(philox.integers(self.case.values.seed, "case", (1,), low, high)[0])

    def directions(self) -> tuple[Reals, Reals]:
        """One vector of signs per kv head: as the queries see it `[B, Hq, 1, D]`, and as the keys do `[B, Hkv, 1, D]`.

        The keys' one carries the sign of the scale, so that a query along it has the largest logit.
        """
        batch, heads, _, dim = self.shapes["k"]
        u = philox.signs(self.case.values.seed, "direction", (batch, heads, 1, dim))
        return np.repeat(u, self.case.heads_q // heads, axis=1), u * self.sign

    def sequences(self) -> list[tuple[int, int, int]]:
        """(batch entry, first key, number of keys) of each sequence."""
        mask, packed = self.case.mask, self.case.mask.packed
        if packed is not None:
            return [(0, first, keys) for first, (_, keys) in zip(packed.cu_k, packed.lengths(), strict=False)]
        lengths = mask.key_lengths if mask.key_lengths is not None else (self.case.seq_k,) * self.case.batch
        return [(b, 0, length) for b, length in enumerate(lengths)]

    def aligned(self, logit: float, room: int = 0) -> tuple[int, int]:
        """Exponents of q and k at which the logit of two equal sign vectors is about `logit`.

        Args:
            logit: the wanted magnitude.
            room: powers of two to keep free below the largest finite value, besides the usual ones.
        """
        return self._split(logit / (self.scale * self.case.dim_qk), room)

    def spread(self, logit: float) -> tuple[int, int]:
        """Exponents of q and k at which the largest logit of normal vectors, about 3 sigma, is about `logit`."""
        return self._split(logit / (3 * self.scale * math.sqrt(self.case.dim_qk)), 0)

    def exponent_of_scale(self) -> int:
        """Exponent of 1 / scale."""
        return exponent(1.0 / self.scale)

    def _split(self, factor: float, room: int) -> tuple[int, int]:
        """Two exponents whose sum is that of `factor`, as far as values of the format and a finite q k^T allow."""
        high = min(self.format.emax - 1, 56) - room
        low = max(self.format.emin + 2, -60)
        total = exponent(factor)
        k = min(max(total // 2, low), high)
        return min(max(total - k, low), high), k
