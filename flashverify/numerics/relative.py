"""Worst-case bounds of the gradient of a relative bias, summed over the pairs of each bucket (docs/bounds.md, section 12)."""

from collections.abc import Callable

import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify.numerics.bound_inputs import BoundInputs, Pairs
from flashverify.numerics.chunk import Chunk
from flashverify.numerics.coefficients import OVERFLOW_FP32, Coefficients
from flashverify.numerics.learned import PairTerms, learned_terms

__all__ = ["onto_buckets", "table_terms"]


def onto_buckets(problem: BoundInputs, buckets: Pairs, count: int, chunk: Chunk) -> Callable[[Tensor], Tensor]:
    """Sums `[G, M, N]` over the pairs of a query head that read the same bucket: `[Hq, count]`, in a fixed order on every device.

    Args:
        problem: The problem.
        buckets: The bucket of each pair, integers in [0, count), one for all heads: `[B or 1, 1, Sq, Sk]`, or a function of two slices.
        count: Buckets of a head.
        chunk: The rows.
    """
    B, Hkv, group = problem.q.shape[:3]
    of = buckets(chunk.rows, slice(0, problem.shape.Sk)) if callable(buckets) else buckets[:, :, chunk.rows]
    present = torch.unique(of)
    pairs = [of == bucket for bucket in present.tolist()]

    def onto(x: Tensor) -> Tensor:
        x = x.reshape(B, Hkv * group, -1, problem.shape.Sk)
        total = x.new_zeros(Hkv * group, count)
        if pairs:
            total[:, present.long()] = torch.stack([torch.where(each, x, 0.0).sum((0, 2, 3)) for each in pairs], 1)
        return total

    return onto


def table_terms(c: Coefficients, c64: Coefficients, y: Tensor, terms: PairTerms) -> tuple[Tensor, ...]:
    """What `finish` takes of a table's gradient, fp32: `sum B_dS + (n - 1) u sum |dS|` over the n visible pairs of a bucket, in any order.

    Args:
        c: Coefficients of the subject.
        c64: Coefficients of the oracle.
        y: The oracle's gradient, `[Hq, buckets]`.
        terms: Of all chunks.

    Returns:
        Tensors in that shape. A bucket without a visible pair is exact.
    """
    n, size, out = terms.visible, terms.size, FORMATS["fp32"]

    def core(error: Tensor, x: Coefficients, rounded: float, flushed: float) -> Tensor:
        grown = (n - 1).clamp(min=0.0) * x.u
        return error + size * (grown / (1 - grown.clamp(max=0.5)) + rounded) + n * (x.w + flushed)

    return learned_terms(
        y,
        core(terms.error, c, c.u_dbias, c.eta_dbias),
        core(terms.self_error, c64, 0.0, 0.0),
        exact=(n == 0) & (terms.exempt == 0),
        exempt=(terms.exempt > 0) | (size >= OVERFLOW_FP32) | terms.overflows,
        trivial=terms.trivial + 2 * n * (c.w + c.eta_dbias) + 2 * out.eta,
        out=out,
    )
