"""SGLang's extend attention: new tokens after cached ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import rows_end_at_keys, triton_form
from flashverify.gallery.place import modules_of
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

extend_attention = modules_of(release("sglang"))("sglang.kernels.ops.attention.extend_attention")


def _places(starts: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The tokens of all sequences, one after the other."""
    pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
    return torch.cat([torch.arange(start, start + length, device=starts.device) for start, length in pairs])


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal", "packed"),
        required_masks=("causal",),
        causal=("bottom-right",),
        logits=("softcap", "sink"),
        also=rows_end_at_keys,
        backward=False,
    ),
    contract=Contract(lse_base=None, padding="undefined"),
    form=triton_form(),
)
def extend(p: Problem) -> Any:
    x = p.varlen()
    o = x.q.new_empty(*x.q.shape[:2], x.v.shape[-1])
    rows, starts = x.cu_seqlens_q.diff(), x.cu_seqlens_k[:-1]
    cached = x.cu_seqlens_k.diff() - rows
    new = _places(starts + cached, rows)
    indptr = torch.nn.functional.pad(cached.cumsum(0, dtype=torch.int32), (1, 0))
    extend_attention.extend_attention_fwd(
        *(x.q, x.k[new], x.v[new], o, x.k, x.v, x.cu_seqlens_q, indptr, _places(starts, cached)),
        *(None, True, None, x.max_seqlen_q, 1.0, 1.0),
        sm_scale=p.scale,
        logit_cap=p.softcap or 0.0,
        sinks=p.sink,
    )
    return p.outputs(o, layout="thd")
