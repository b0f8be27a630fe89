"""Draws of the storage, the incoming gradients and the scale of a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.case import POISONS, Grad, Storage
from flashverify.case.space.sampling import one_in, sampled_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_grad", "draw_storage", "scale_choices"]


def scale_choices(supports: Supports) -> list[float | None]:
    """Scales of the signs that the subject has; the default, first, most often."""
    scales: list[float | None] = [None] * (3 * ("default" in supports.scales))
    scales += [float(scale) for scale in supports.scales if not isinstance(scale, str)]
    if "positive" in supports.scales:
        scales += [None] * 7 + [1.0, 0.125, 1e4, 1e-30, 2.0**-140]
    if "zero" in supports.scales:
        scales += [0.0]
    if "negative" in supports.scales:
        scales += [-0.125, -1.0]
    return scales


def draw_storage(draw: Draw, supports: Supports, aligned: bool) -> Storage:
    """Layout, gaps, offsets and what the padding holds; aligned ones are multiples of 8 elements."""
    gaps = ((0, 0, 8) if aligned else (0, 1, 3)) if supports.gaps else (0,)
    offsets = (0, 0, 8) if aligned else (1, 4)
    return Storage(
        layout=draw(sampled_from([layout for layout in ("bhsd", "bshd") if layout in supports.layouts])),
        gap=draw(sampled_from(gaps)),
        offset=draw(sampled_from(offsets)),
        expand=supports.expand and draw(one_in(6)),
        padding=draw(sampled_from(POISONS)),
    )


def draw_grad(draw: Draw, supports: Supports) -> Grad:
    """The incoming gradients, in one case of ten none."""
    strided = () if supports.contiguous else ("expanded", "transposed")
    do = draw(sampled_from(("dense", "dense", "dense", *strided, "zero")))
    dlse = supports.dlse and draw(st.booleans())
    forward_only = draw(one_in(10))
    return Grad(do=do, dlse=dlse) if supports.backward and not forward_only else Grad(backward=False)
