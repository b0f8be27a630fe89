"""flash-attention-triton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import triton_form
from flashverify.gallery.place import modules_of
from flashverify.launching.pretend import pretend_cuda
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

with pretend_cuda((9, 0)):
    package = modules_of(release("flash_attention_triton"))("flash_attention_triton")


@subject(
    supports=Supports(
        dtypes=("fp16",),
        masks=("causal",),
        required_masks=("causal",),
        square=True,
        equal_dims=True,
        gqa=False,
        dim_max=128,
    ),
    contract=Contract(lse_base=None),
    form=triton_form(normalise="lse", scale_ds="before"),
    pretend_cuda=(9, 0),
)
def causal(p: Problem) -> Any:
    return package.flash_attention_v2(p.q, p.k, p.v, p.scale, deterministic=True)
