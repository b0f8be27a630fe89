"""Liger-Kernel's neighborhood attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import triton_form
from flashverify.gallery.place import modules_of
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem

neighborhood_attention = modules_of(release("liger_kernel"))("liger_kernel.ops.fused_neighborhood_attention")


def _not_symmetric(case: Case) -> str | None:
    window = case.mask.window
    return (
        "the window is not the same on both sides"
        if window is None or None in window or window[0] != window[1]
        else None
    )


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("window",),
        required_masks=("window",),
        square=True,
        equal_dims=True,
        gqa=False,
        also=_not_symmetric,
    ),
    contract=Contract(lse_base=None),
    form=triton_form(s_dtype="input", normalise="before_cast"),
)
def neighborhood(p: Problem) -> Any:
    left, _ = p.window or (0, 0)
    size = 2 * (left or 0) + 1
    return neighborhood_attention.LigerFusedNeighborhoodAttentionFunction.apply(p.q, p.k, p.v, size, 1, p.scale)
