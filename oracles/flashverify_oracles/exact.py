"""Attention and its gradients with mpmath, at growing precision until two precisions agree.

Inputs are integers times a power of two, so products, dP, biases and every difference of two of them are exact too; only exponentials,
one logarithm, divisions, a softcap and the sums after them are rounded. For small problems: the cost grows with Sq * Sk**2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import torch
from mpmath import mp

from flashverify_oracles._exact_evaluate import evaluate
from flashverify_oracles._exact_rows import Features, Inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from flashverify_oracles._exact_numbers import Array, PairSource

# Two successive precisions agree on an element when they differ by at most this fraction of it ...
RELATIVE_TOLERANCE_BITS = 96
# ... or when both are below 2**-1140, where it is taken as 0: the smallest float64 is 2**-1074.
ZERO_EXPONENT = -1140
_FIRST_PRECISION = 160


class PrecisionExhausted(ArithmeticError):  # noqa: N818 - it names what ran out
    """An element still changed between the last two precisions allowed."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExactAttention:
    """Attention to about 96 bits, as numpy object arrays of `mpmath.mpf`.

    The gradients are None where no `do` was given. Results that depend on a non-finite input are NaN.

    Attributes:
        o: `[B, Hq, Sq, Dv]`.
        lse: `[B, Hq, Sq]` base e; -inf on rows that see no key.
        delta: `[B, Hq, Sq]` rowsum(dO * O), without dLSE.
        dq: `[B, Hq, Sq, D]`.
        dk: `[B, Hkv, Sk, D]`.
        dv: `[B, Hkv, Sk, Dv]`.
        dbias: of `bias_shape`, or None.
        dsink: `[Hq]`, or None.
        drelative_bias: `[Hq, bucket_count]`, or None.
        precision: bits with which the elements were computed.
    """

    o: Array
    lse: Array
    delta: Array | None = None
    dq: Array | None = None
    dk: Array | None = None
    dv: Array | None = None
    dbias: Array | None = None
    dsink: Array | None = None
    drelative_bias: Array | None = None
    precision: int

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Name and array of every result that was computed."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                yield field.name, value


def exact_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor | None = None,
    *,
    scale: float,
    visible: PairSource | None = None,
    softcap: float | None = None,
    biases: Sequence[PairSource] = (),
    sink: torch.Tensor | None = None,
    keep: PairSource | None = None,
    dropout: float = 0.0,
    dlse: torch.Tensor | None = None,
    given_o: torch.Tensor | None = None,
    given_lse: torch.Tensor | None = None,
    bias_shape: Sequence[int] | None = None,
    relative_buckets: PairSource | None = None,
    bucket_count: int | None = None,
    max_precision: int = 10_240,
) -> ExactAttention:
    """Attention and its gradients to about 96 bits.

    `lse = log(exp(sink) + sum(exp(S)))` and `o = sum(keep P v) / (1 - dropout)`, `P = exp(S - lse)`, over the keys that a row sees, with
    `t = scale * q k^T` and `S = softcap * tanh(t / softcap) + sum(biases)`; the gradients are those of `sum(o * do) + sum(lse * dlse)`.
    Conventions are those of the float64 oracle: a row that sees no key has o = 0, lse = -inf, delta = 0 and touches no gradient; with
    `given_o` or `given_lse`, delta or P are taken from them. Masks and biases are tensors that broadcast to `[B, Hq, Sq, Sk]`, or
    callables `(rows, keys)` of two slices that return one.

    Args:
        q: `[B, Hq, Sq, D]` floating; query head h reads key head `h // (Hq // Hkv)`.
        k: `[B, Hkv, Sk, D]` floating.
        v: `[B, Hkv, Sk, Dv]` floating.
        do: `[B, Hq, Sq, Dv]` floating; None for the forward pass alone.
        scale: factor of the logits, finite, taken exactly.
        visible: which key each row sees, bool; None for every one.
        softcap: finite and positive; None or 0 for no cap.
        biases: floating, natural units, each added to the capped logits, their sum taken exactly.
        sink: `[Hq]` floating, natural units: logit of one more column with v = 0; None for none.
        keep: which pairs dropout keeps, bool; None for all.
        dropout: in [0, 1), taken exactly; a positive one needs `keep`.
        dlse: `[B, Hq, Sq]` floating, gradient of the log-sum-exp (base e); None for 0.
        given_o: `[B, Hq, Sq, Dv]` floating, a subject's own output.
        given_lse: `[B, Hq, Sq]` floating, a subject's own log-sum-exp, base e.
        bias_shape: shape of the bias whose gradient is asked for; it broadcasts to `[B, Hq, Sq, Sk]`.
        relative_buckets: which entry of its head's table each pair reads, integers in [0, bucket_count), given like a mask; the
            gradient of the table is asked for. The bias itself is one of `biases`.
        bucket_count: entries of the table of one head; given with `relative_buckets`.
        max_precision: bits beyond which to give up.

    Returns:
        Every element as an mpf: two successive precisions agree on it to 2**-96 of its value, or both are below 2**-1140 (then 0).
        Terms that cancel to exactly 0 at both precisions give 0: the true value is below 2**-300 of the sum of their magnitudes.

    Raises:
        TypeError: an argument is not a floating tensor, a mask is not bool, or buckets are not integers.
        ValueError: shapes do not belong together, a number is out of its range, or a gradient's argument is given without `do`.
        PrecisionExhausted: two precisions up to `max_precision` did not agree.
    """
    with mp.workprec(_FIRST_PRECISION):
        features = Features(
            softcap=softcap,
            biases=biases,
            sink=sink,
            keep=keep,
            dropout=dropout,
            bias_shape=None if bias_shape is None else tuple(bias_shape),
            relative_buckets=relative_buckets,
            bucket_count=bucket_count,
        )
        inputs = Inputs(q, k, v, do, scale, features, dlse, given_o, given_lse)
        rows = inputs.rows(visible)
    precision, before = _FIRST_PRECISION, None
    while precision <= max_precision:
        with mp.workprec(precision):
            now = evaluate(inputs, rows)
            if before is not None and _settle(before, now):
                return ExactAttention(**now, precision=precision)
        before, precision = now, 2 * precision
    raise PrecisionExhausted(
        f"two precisions up to max_precision={max_precision} bits do not agree to 2**-{RELATIVE_TOLERANCE_BITS}"
    )


def max_abs_difference(exact: Array, approximate: torch.Tensor) -> float:
    """Largest element of `abs_difference`, 0.0 if there is none."""
    return float(abs_difference(exact, approximate).max(initial=0.0))


def abs_difference(exact: Array, approximate: torch.Tensor) -> npt.NDArray[np.float64]:
    """|exact - approximate| of every element, rounded to float64 only at the end.

    Args:
        exact: object array of mpf.
        approximate: floating tensor of the same shape.

    Returns:
        float64 array: 0 where both are NaN or the same infinity, inf where only one of them is, or their infinities differ.

    Raises:
        ValueError: the shapes differ.
    """
    if exact.shape != tuple(approximate.shape):
        raise ValueError(f"approximate must have the shape {exact.shape}, got {tuple(approximate.shape)}")
    out = np.zeros(exact.shape, dtype=np.float64)
    numbers = approximate.detach().to(dtype=torch.float64, device="cpu").numpy()
    with mp.workprec(_FIRST_PRECISION):
        for index in np.ndindex(exact.shape):
            x, y = exact[index], float(numbers[index])
            if mpmath.isfinite(x) and math.isfinite(y):
                out[index] = float(abs(x - y))
            elif x != y and not (mpmath.isnan(x) and math.isnan(y)):
                out[index] = math.inf
    return out


def _settle(before: dict[str, Array], now: dict[str, Array]) -> bool:
    """Whether two evaluations agree; elements of `now` that are 0 to all intents become 0."""
    zero = mp.ldexp(1, ZERO_EXPONENT)
    for name, array in now.items():
        old, new = before[name].reshape(-1), array.reshape(-1)
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            if a == b or (mpmath.isnan(a) and mpmath.isnan(b)):
                continue
            if abs(a - b) <= mp.ldexp(abs(b), -RELATIVE_TOLERANCE_BITS):
                continue
            if not (abs(a) <= zero and abs(b) <= zero):
                return False
            new[i] = mp.zero
    return True
