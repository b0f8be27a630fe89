"""xFormers' split-K attention in Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import dims_among, triton_form
from flashverify.gallery.place import modules_of
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

module = modules_of(release("xformers"))
triton_splitk = module("xformers.ops.fmha.triton_splitk")
common = module("xformers.ops.fmha.common")
triton_splitk.FwOp.SPLIT_K = 3


@subject(
    supports=Supports(
        dtypes=("fp16", "bf16"), equal_dims=True, gqa=False, also=dims_among(16, 32, 64, 128, 256), backward=False
    ),
    contract=Contract(masked_loads="zero"),
    form=triton_form(n_splits=3),
    pretend_cuda=(8, 0),
)
def splitk(p: Problem) -> Any:
    x = p.bshd()
    o, context = triton_splitk.FwOp.apply(common.Inputs(x.q, x.k, x.v, scale=p.scale), needs_gradient=True)
    return p.outputs(o, context.lse, "bshd", "bhs")
