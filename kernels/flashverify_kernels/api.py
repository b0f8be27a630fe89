from typing import Literal, Unpack, overload

import torch

from flashverify_kernels.autograd import differentiable
from flashverify_kernels.options import AttentionOptions, Options, check_names, described

_ACCEPTED = AttentionOptions.__optional_keys__
_NONE = Options.of({})


@overload
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    return_lse: Literal[False] = ...,
    **options: Unpack[AttentionOptions],
) -> torch.Tensor: ...


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: Literal[True], **options: Unpack[AttentionOptions]
) -> tuple[torch.Tensor, torch.Tensor]: ...


@described(AttentionOptions, Options)
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: bool = False, **options: Unpack[AttentionOptions]
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(cap(scale * q k^T) + bias - alibi + relative) v, differentiably in q, k, v, the bias, sinks and relative bias.

    Query head h reads kv head h // (Hq // Hkv). A mask is the AND of its parts; a query that sees no key has O = 0,
    LSE = -inf and gradients of exactly 0. Results do not depend on batch, heads or neighbours and repeat bit for bit.

    Args:
        q: `[B, Hq, Sq, D]` fp16, bf16 or fp32, D a multiple of 8 up to 256; any strides with a last one of 1.
        k: `[B, Hkv, Sk, D]`, Hq a multiple of Hkv.
        v: `[B, Hkv, Sk, Dv]`, Dv a multiple of 8 up to 256.
        scale: finite, any sign; 1 / sqrt(D) by default.
        causal: query i sees key j where j <= i + shift; the shift is 0 ("top-left") or the number of keys minus the number
            of queries ("bottom-right"), by the lengths of the batch where they are given.
        window: (left, right): query i sees key j where i + shift - left <= j <= i + shift + right; None is unbounded. The
            shift is that of `causal`, 0 without.
        query_lengths: `[B]` int32, from 0 to Sq: queries from there on are not read, see no key, and are still written.
            Values are checked on the CPU; on a GPU, where reading them would synchronise, kernels clamp them.
        key_lengths: `[B]` int32, from 0 to Sk: keys from there on are neither seen nor read, and their gradients are 0.
        prefix_lengths: `[B]` int32, from 0 to Sk: what `causal` hides, a query sees all the same where j is before this length, as
            far as the other masks let it. With `causal` only; not with `tree` or a right side of `window`. Checked and clamped
            as `key_lengths`.
        tree: the queries are the nodes of a tree, the last Sq keys are the same nodes. A node sees all Sk - Sq keys
            before them, itself and its ancestors. The entries of a batch share it, or have one each. `causal` and `window`
            count rows and keys: node i stands where query i does.
        bitmap: one bit per query and key.
        blocks: one bool per block of queries by keys; dead blocks are neither read nor computed.
        softcap: logits are softcap * tanh(t / softcap) instead of t = scale * q k^T; positive.
        alibi_slopes: `[Hq]` fp32: -slope * |i + shift - j| is added to the logits, with the shift of `causal`. No gradient.
        bias: `[B or 1, Hq or 1, Sq, Sk]` in the dtype of q, in this order of axes in every layout: added to the logits,
            differentiable. For finite numbers, not as a mask: one of -inf acts as the most negative logit.
        sink: `[Hq]` fp32: the logit of one more key without a value that every query with a key sees; differentiable. The
            LSE includes it.
        relative_bias: a table per query head, read by the bucket of the clipped distance j - (i + shift), is added to the logits, with
            the shift of `causal`; differentiable. For finite numbers, as `bias`.
        dropout: drops weights after the softmax; the LSE does not know of it.
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
    given = _NONE
    if options:
        check_names("attention", options, _ACCEPTED)
        given = Options.of(options)
    o, lse = differentiable(q, k, v, given, with_lse=return_lse)
    return (o, lse) if lse is not None and return_lse else o
