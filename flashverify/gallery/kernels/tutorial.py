"""Triton's tutorial 06, fused attention, from a file that the user names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.gallery.conditions import dims_among, triton_form
from flashverify.gallery.place import module_of_file
from flashverify.launching.pretend import pretend_cuda
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

with pretend_cuda((8, 0)):
    module = module_of_file()


@subject(
    supports=Supports(
        dtypes=("fp16",),
        masks=("causal",),
        required_masks=("causal",),
        seq_multiple=128,
        square=True,
        equal_dims=True,
        gqa=False,
        contiguous=True,
        also=dims_among(64, 128),
    ),
    contract=Contract(lse_base=None),
    form=triton_form(prescale_bwd="k"),
    autotuned=module._attn_fwd,
    pretend_cuda=(8, 0),
)
def attention(p: Problem) -> Any:
    return module.attention(p.q, p.k, p.v, True, p.scale, False)
