"""Chunks of a problem whose K and V are quantised (docs/bounds.md, section 23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.numerics.quantised import aligned_codes, quantised_errors

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.bound_inputs import BoundInputs
    from flashverify.numerics.chunk import Chunk

__all__ = ["carried_scales", "error_of_values", "smallest_units", "with_scales"]


def with_scales(problem: BoundInputs, chunk: Chunk) -> Chunk:
    """The chunk with what its scales add; itself where it has none."""
    k_scale, v_scale, form = problem.k_scale, problem.v_scale, problem.form
    if k_scale is None or v_scale is None:
        return chunk
    q_scale = None if problem.q_scale is None else problem.cut(problem.q_scale, chunk.rows)
    ak = aligned_codes(chunk.ak, k_scale, form=form, dtype=problem.dtype)
    aq = chunk.aq if q_scale is None else aligned_codes(chunk.aq, q_scale, form=form, dtype=problem.dtype)
    if ak is not chunk.ak or aq is not chunk.aq:
        chunk.ak, chunk.aq, chunk.A = ak, aq, chunk.mask(aq @ ak.mT)
    p_max, scale = problem.coefficients().p_max, abs(problem.scale)
    scales = (q_scale, k_scale, v_scale)
    found = quantised_errors(chunk, *scales, form=form, dtype=problem.dtype, scale=scale, p_max=p_max)
    chunk.quantised, chunk.bad = found, chunk.bad | found.bad
    bad_v = found.bad_v.expand(-1, -1, chunk.v.shape[-1])
    chunk.bad_v = bad_v if chunk.bad_v is None else chunk.bad_v | bad_v
    return chunk


def carried_scales(problem: BoundInputs, chunk: Chunk) -> Tensor | None:
    """`[G, N, 1]` what multiplies the weights before their cast; None where nothing does. A key without a scale has V = 0."""
    scale, form = problem.v_scale, problem.form
    if scale is None or chunk.quantised is None or form.dequantised != "folded" or form.v_scale_last:
        return None
    return scale.where(scale > 0, 1.0)


def smallest_units(chunk: Chunk, nv: Tensor) -> tuple[Tensor, Tensor]:
    """What underflow of a weight and of a product is multiplied by: sums over the visible keys of |V| `nv`, or of its codes, and of 1, or of its scales."""
    scales = chunk.quantised
    if scales is None:
        return nv, chunk.n
    return chunk.over_kept_keys(scales.unit_v), chunk.over_keys(scales.most)


def error_of_values(chunk: Chunk, largest: Tensor) -> Tensor | float:
    """Error of O from that of the elements of V, `[G, M, Dv]`; `largest` are the largest weights, `[G, M, N]`."""
    scales = chunk.quantised
    if scales is None:
        return 0.0
    if chunk.kept is None:
        return chunk.mask(largest) @ scales.v
    return (largest * chunk.kept @ scales.v).mul_(chunk.factor)
