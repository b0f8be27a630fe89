"""aule-attention in Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import no_zero_window, triton_form
from flashverify.gallery.place import modules_of
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

triton_flash = modules_of(release("aule"))("aule.triton_flash")

_PLAIN = Supports(precisions=("tf32",), masks=("causal",), causal=("top-left",), equal_dims=True, square=True)


@subject(supports=_PLAIN, contract=Contract(lse_base=None), form=triton_form())
def flash(p: Problem) -> Any:
    return triton_flash.flash_attention_triton(p.q, p.k, p.v, p.causal is not None, p.scale)


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal", "window"),
        required_masks=("causal", "window"),
        causal=("top-left",),
        window_sides=("left",),
        square=True,
        equal_dims=True,
        also=no_zero_window,
    ),
    contract=Contract(lse_base=None),
    form=triton_form(),
)
def window(p: Problem) -> Any:
    size = p.window[0] if p.window is not None else None
    return triton_flash.flash_attention_triton(p.q, p.k, p.v, True, p.scale, -1 if size is None else size)
