from dataclasses import replace
from typing import Any, Literal, overload

import torch
from torch.autograd.function import once_differentiable

from flashverify_kernels.config import Configs
from flashverify_kernels.launch import backward, forward
from flashverify_kernels.tree import TreeMask
from flashverify_kernels.validation import Causal, Layout, Options, Precision


class _Attention(torch.autograd.Function):
    """Saves and unpacks; the launchers compute."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options
    ) -> tuple[torch.Tensor, torch.Tensor]:
        result = forward(q, k, v, options)
        ctx.save_for_backward(q, k, v, *result, options.key_lengths)
        ctx.options = replace(options, key_lengths=None)
        ctx.set_materialize_grads(False)
        return result.o, result.lse_natural()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, None]:
        q, k, v, o, lse2, key_lengths = ctx.saved_tensors
        if do is None and dlse is None:
            return None, None, None, None
        do = torch.zeros_like(o) if do is None else do
        options = replace(ctx.options, key_lengths=key_lengths)
        result = backward(do, q, k, v, o, lse2, options, dlse=dlse, needs=ctx.needs_input_grad[:3])
        return result.dq, result.dk, result.dv, None


@overload
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = ...,
    causal: Causal | None = ...,
    key_lengths: torch.Tensor | None = ...,
    tree: TreeMask | None = ...,
    precision: Precision = ...,
    layout: Layout = ...,
    return_lse: Literal[False] = ...,
    config: Configs | None = ...,
    allow_interpreted_bf16: bool = ...,
) -> torch.Tensor: ...


@overload
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = ...,
    causal: Causal | None = ...,
    key_lengths: torch.Tensor | None = ...,
    tree: TreeMask | None = ...,
    precision: Precision = ...,
    layout: Layout = ...,
    return_lse: Literal[True],
    config: Configs | None = ...,
    allow_interpreted_bf16: bool = ...,
) -> tuple[torch.Tensor, torch.Tensor]: ...


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    causal: Causal | None = None,
    key_lengths: torch.Tensor | None = None,
    tree: TreeMask | None = None,
    precision: Precision = "ieee",
    layout: Layout = "bhsd",
    return_lse: bool = False,
    config: Configs | None = None,
    allow_interpreted_bf16: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale * q k^T) v, differentiably in q, k and v.

    Query head h reads kv head h // (Hq // Hkv). A mask is the AND of its parts; a query that sees no key has O = 0,
    LSE = -inf and gradients of exactly 0. Results do not depend on batch, heads or neighbours and repeat bit for bit.

    Args:
        q: `[B, Hq, Sq, D]` fp16, bf16 or fp32, D a multiple of 8 up to 256; any strides with a last one of 1.
        k: `[B, Hkv, Sk, D]`, Hq a multiple of Hkv.
        v: `[B, Hkv, Sk, Dv]`, Dv a multiple of 8 up to 256.
        scale: finite, any sign; 1 / sqrt(D) by default.
        causal: query i sees key j where j <= i ("top-left") or j <= i + n - Sq ("bottom-right"), n being the key length
            of the batch where given, else Sk.
        key_lengths: `[B]` int32, from 0 to Sk: keys from there on are neither seen nor read, and their gradients are 0.
            Values are checked on the CPU; on a GPU, where reading them would synchronise, kernels clamp them.
        tree: the queries are the nodes of a tree, the last Sq keys are the same nodes. A node sees all Sk - Sq keys
            before them, itself and its ancestors. Not together with `causal`.
        precision: of the dot products of fp32 inputs; without effect on fp16 and bf16.
        layout: order of the axes of q, k, v and of the outputs: "bhsd" as above, or "bshd".
        return_lse: also return the LSE.
        config: launch configurations that replace the defaults.
        allow_interpreted_bf16: accept bf16 in Triton's interpreter, which by itself computes it wrongly; for callers
            that have corrected the interpreter.

    Returns:
        O, `[B, Hq, Sq, Dv]` in the layout and dtype of q; with `return_lse` also the natural-log LSE, `[B, Hq, Sq]` fp32
        in both layouts, differentiable too. Internally LSE is kept in base 2 and multiplied by ln(2) at the end.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    options = Options(
        scale=scale,
        causal=causal,
        key_lengths=key_lengths,
        tree=tree,
        precision=precision,
        layout=layout,
        config=config,
        allow_interpreted_bf16=allow_interpreted_bf16,
    )
    o, lse = _Attention.apply(q, k, v, options)  # type: ignore[no-untyped-call]
    return (o, lse) if return_lse else o
