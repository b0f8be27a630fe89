"""Attention over a latent cache (MLA): K and V of all heads in one buffer, for decoding and prefill; forward."""

import contextlib
import math
from typing import Any

import torch

from flashverify_kernels.arguments import mask_parts
from flashverify_kernels.decode_validation import CheckedDecode
from flashverify_kernels.device.arguments import PageTable, Sizes
from flashverify_kernels.device.latent import latent_kernel
from flashverify_kernels.latent_config import launch_constants
from flashverify_kernels.latent_validation import check_latent
from flashverify_kernels.merge import aligned, launch_merge
from flashverify_kernels.options import DecodeOptions, check_names
from flashverify_kernels.validation import axes
from flashverify_kernels.views import part_view, view

_ACCEPTED = frozenset(
    (
        "scale",
        "causal",
        "window",
        "key_lengths",
        "block_table",
        "n_splits",
        "precision",
        "layout",
        "allow_interpreted_bf16",
    )
)
_LOG2_E = math.log2(math.e)
_LN_2 = math.log(2)


def latent_attention(
    q: torch.Tensor, kv: torch.Tensor, *, dim_v: int, return_lse: bool = False, **options: Any
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale * q kv^T) v where v is the first `dim_v` channels of `kv`; no backward.

    Keys are split and merged as by `decode`, and any number of queries is taken: one for decoding, many for prefill. The queries of all
    heads of a kv head share tiles, and the latent channels of a key are read once for both products.

    Args:
        q: `[B, Hq, Sq, D]` fp16, bf16 or fp32; D - dim_v, the channels of the rotary part, is a multiple of 8 from 0 to 256.
        kv: `[B, Hkv, Sk, D]`, Hkv mostly 1; with a `block_table` `[P, page_size, Hkv, D]` in both layouts.
        dim_v: channels of V and O, a multiple of 8 up to 512.
        return_lse: also return the LSE.
        **options: `scale` (1 / sqrt(D) by default), `causal`, `window`, `key_lengths`, `block_table`, `n_splits`, `precision`, `layout`
            and `allow_interpreted_bf16`, as of `decode`.

    Returns:
        O, `[B, Hq, Sq, dim_v]` in the layout and dtype of q; with `return_lse` also the natural-log LSE, `[B, Hq, Sq]` fp32. A query
        that sees no key has O = 0 and LSE = -inf.

    Raises:
        TypeError: an argument of the wrong type or dtype, or an option that is not known.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    check_names("latent_attention", options, _ACCEPTED)
    given = DecodeOptions(**options)
    call = check_latent(q, kv, dim_v, given)
    perm = axes(given.layout)
    shape = (call.batch, call.heads, call.sq, call.dv)
    o = torch.empty([shape[a] for a in perm], dtype=q.dtype, device=q.device)
    lse = torch.empty(shape[:3], dtype=torch.float32, device=q.device)
    if o.numel():
        _launch(q, kv, o.permute(perm), lse, given, call)
    return (o, lse) if return_lse else o


def _launch(
    q: torch.Tensor, kv: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, options: DecodeOptions, call: CheckedDecode
) -> None:
    """Both phases, into `o` (axes b, h, s, c) and `lse`; a single split writes there itself."""
    perm = axes(options.layout)
    q, kv = q.permute(perm), kv.permute(perm if options.block_table is None else (0, 2, 1, 3))
    whole = call.splits == 1
    parts, parts_lse = o[None], lse[None]
    if not whole:
        parts = torch.empty((call.splits, *o.shape), dtype=torch.float32, device=o.device)
        parts_lse = torch.empty((call.splits, *lse.shape), dtype=torch.float32, device=o.device)
    table, rope = options.block_table, call.d - call.dv
    constants = launch_constants(
        call.config,
        dv=call.dv,
        rope=rope,
        page_size=call.page_size,
        aligned=aligned(q, kv, parts),
        mask=call.mask.flags,
        precision=call.precision,
    )
    with torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext():
        latent_kernel[(call.programs,)](
            q_view=view(q),
            kv_view=view(kv),
            o_view=part_view(parts),
            lse_ptr=parts_lse,
            scale_log2=call.scale * _LOG2_E,
            lse_scale=_LN_2 if whole else 1.0,
            k_lengths_ptr=options.key_lengths,
            pages=PageTable(table, 0 if table is None else table.stride(0), call.page_size),
            batch=call.batch,
            splits=call.splits,
            rope8=rope // 8,
            sizes=Sizes(
                heads=call.heads,
                kv_heads=call.kv_heads,
                group=call.group,
                sq=call.sq,
                sk=call.sk,
                d8=call.d // 8,
                dv8=call.dv // 8,
            ),
            mask=mask_parts(call.mask, "forward"),
            **constants,
        )
    if not whole:
        launch_merge(parts, parts_lse, o, lse, base2=True, lse_scale=_LN_2)
