"""jvp-flash-attention."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import dims_among, triton_form
from flashverify.gallery.place import modules_of
from flashverify.launching.pretend import pretend_cuda
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

with pretend_cuda((8, 0)):
    package = modules_of(release("jvp_flash_attention"))("jvp_flash_attention.jvp_attention")


_SUPPORTS = Supports(
    precisions=("tf32",),
    masks=("causal",),
    square=True,
    equal_dims=True,
    gqa=False,
    contiguous=True,
    also=dims_among(32, 64, 128, 256),
)


@subject(
    supports=dataclasses.replace(_SUPPORTS, seq_q=range(32, 129, 32)),
    contract=Contract(lse_base=None),
    form=triton_form(prescale_bwd="k"),
    pretend_cuda=(8, 0),
)
def whole(p: Problem) -> Any:
    return package.JVPAttn.fwd_dual(p.q, p.k, p.v, causal=p.causal is not None, sm_scale=p.scale, USE_TMA=False)


@subject(
    supports=dataclasses.replace(_SUPPORTS, seq_q=range(32, 129, 2), backward=False),
    contract=Contract(lse_base=None),
    form=triton_form(prescale_bwd="k"),
    pretend_cuda=(8, 0),
)
def even(p: Problem) -> Any:
    return package.JVPAttn.fwd_dual(p.q, p.k, p.v, causal=p.causal is not None, sm_scale=p.scale, USE_TMA=False)
