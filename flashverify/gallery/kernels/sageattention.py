"""SageAttention's Triton kernel over Q and K in int8. V is given as values, rounded to fp16."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.place import modules_of
from flashverify.numerics.form import Form
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

per_block = modules_of(release("sageattention"))("sageattention.attn_qk_int8_per_block")

_ROWS, _KEYS, _LOG2_E = 128, 64, math.log2(math.e)
_FORM = Form(pv_dtype="input", kappa=4.0, block_n=_KEYS, key_order="ascending")
_CONTRACT = Contract(lse_base=None, empty_row_o=None)


def _supports(**more: Any) -> Supports:
    """A scale serves 128 rows and 64 keys, or more: up to 64 rows have one either way."""
    return Supports(
        dtypes=("fp16",),
        quantised=("int8",),
        quantised_scales=("tensor", "head", "block"),
        quantised_blocks=(_KEYS,),
        quantised_q=("codes",),
        max_seq_q=_KEYS,
        dim_pairs=((64, 64), (128, 128)),
        backward=False,
        **more,
    )


def _each(groups: torch.Tensor | None, codes: torch.Tensor, shared: int) -> torch.Tensor:
    """The scale of each key or row, `[B, H, S]`."""
    import torch

    assert groups is not None
    at = torch.arange(codes.shape[2], device=codes.device) // shared
    return groups.expand(*codes.shape[:2], -1)[:, :, at.clamp(max=groups.shape[2] - 1)]


def _attention(p: Problem) -> Any:
    import torch

    x = p.quantised()
    v = x.v.float() * _each(x.v_scale, x.v, x.keys_per_scale).unsqueeze(-1)
    q_scale = _each(x.q_scale, x.q, x.rows_per_scale)[:, :, ::_ROWS].contiguous() * (p.scale * _LOG2_E)
    k_scale = _each(x.k_scale, x.k, x.keys_per_scale)[:, :, ::_KEYS].contiguous()
    return per_block.forward(x.q, x.k, v.to(torch.float16), q_scale, k_scale)


@subject(supports=_supports(seq_k=range(_KEYS, 1 << 16, _KEYS)), contract=_CONTRACT, form=_FORM)
def int8(p: Problem) -> Any:
    return _attention(p)


@subject(supports=_supports(), contract=_CONTRACT, form=_FORM)
def int8_any(p: Problem) -> Any:
    return _attention(p)
