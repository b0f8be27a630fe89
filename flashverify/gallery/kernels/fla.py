"""flash-linear-attention's softmax attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import triton_form
from flashverify.gallery.place import modules_of
from flashverify.launching.pretend import pretend_cuda
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

with pretend_cuda((9, 0)):
    module = modules_of(release("fla"))
    parallel_attention = module("fla.ops.attn.parallel")
    decoding = module("fla.ops.attn.decoding")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal", "window", "packed"),
        required_masks=("causal",),
        window_sides=("left",),
        logits=("sink",),
        square=True,
        contiguous=True,
        layouts=("bshd",),
    ),
    contract=Contract(lse_base=None, padding="undefined", gradients=frozenset({"dq", "dk", "dv", "dsink"})),
    form=triton_form(),
    pretend_cuda=(9, 0),
)
def parallel(p: Problem) -> Any:
    window = None if p.window is None or p.window[0] is None else p.window[0] + 1
    if p.case.mask.packed is None:
        x = p.bshd()
        o = parallel_attention.parallel_attn(x.q, x.k, x.v, scale=p.scale, window_size=window, sink_bias=p.sink)
        return p.outputs(o, layout="bshd")
    y = p.varlen()
    q, k, v = (t[None, : int(y.cu_seqlens_q[-1])] for t in (y.q, y.k, y.v))
    given = {"scale": p.scale, "window_size": window, "cu_seqlens": y.cu_seqlens_q, "sink_bias": p.sink}
    o = parallel_attention.parallel_attn(q, k, v, **given)[0]
    return p.outputs(torch.nn.functional.pad(o, (0, 0, 0, 0, 0, len(y.q) - len(o))), layout="thd")


@subject(
    supports=Supports(
        precisions=("tf32",), masks=("key_lengths",), logits=("sink",), seq_q=(1,), contiguous=True, backward=False
    ),
    contract=Contract(lse_base=None),
    form=triton_form(prescale_fwd="q"),
    pretend_cuda=(9, 0),
)
def decode(p: Problem) -> Any:
    x = p.varlen()
    q, k, v = (t[None] for t in (x.q, x.k, x.v))
    given = {"scale": p.scale, "cu_seqlens": x.cu_seqlens_k, "sink_bias": p.sink}
    return p.outputs(decoding.attn_decoding_one_step(q, k, v, **given)[0], layout="thd")
