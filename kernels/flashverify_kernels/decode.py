"""Attention of a few queries over many keys: split-KV flash-decoding, contiguous or paged."""

import contextlib
import math
from typing import Literal, Unpack, overload

import torch

from flashverify_kernels.arguments import logit_terms, mask_parts
from flashverify_kernels.decode_config import launch_constants
from flashverify_kernels.decode_validation import CheckedDecode, check_decode
from flashverify_kernels.device.arguments import PageTable, Sizes
from flashverify_kernels.device.decode import decode_kernel
from flashverify_kernels.dispatch import dispatched, ops
from flashverify_kernels.flatten import flatten_decode
from flashverify_kernels.merge import aligned, launch_merge
from flashverify_kernels.options import DecodeOptions, DecodingOptions, check_names, described
from flashverify_kernels.plain import NotPlainError
from flashverify_kernels.plans import launched, planned
from flashverify_kernels.results import DecodeResult
from flashverify_kernels.validation import axes
from flashverify_kernels.views import part_view, view

_LOG2_E = math.log2(math.e)
_LN_2 = math.log(2)
_ACCEPTED = DecodingOptions.__optional_keys__


@overload
def decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    return_lse: Literal[False] = ...,
    **options: Unpack[DecodingOptions],
) -> torch.Tensor: ...


@overload
def decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: Literal[True], **options: Unpack[DecodingOptions]
) -> tuple[torch.Tensor, torch.Tensor]: ...


@described(DecodingOptions, DecodeOptions)
def decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: bool = False, **options: Unpack[DecodingOptions]
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale * q k^T) v for few queries and many keys; no backward.

    The visible keys of each sequence are split into `n_splits` parts of whole tiles, each part is one attention in fp32, and
    the parts are merged (`merge`). The queries of all heads of a kv head share one tile, so that K and V are read once; rows
    beyond one tile are further programs.

    For a fixed `n_splits` and `config` the result of a sequence depends on nothing but that sequence and the length class of
    the packed rows (up to 16, up to 32, more), and repeats bit for bit. A chosen `n_splits` depends on batch, heads, room for
    keys and device. With `n_splits=1` nothing is merged: it is `attention` with these tiles.

    Args:
        q: `[B, Hq, Sq, D]` fp16, bf16 or fp32, D a multiple of 8 up to 256; any strides with a last one of 1.
        k: `[B, Hkv, Sk, D]`, any strides with a last one of 1; with a `block_table` `[P, page_size, Hkv, D]` in both layouts.
        v: likewise, with Dv channels, a multiple of 8 up to 256.
        scale: finite, any sign; 1 / sqrt(D) by default.
        causal: "bottom-right": the queries are the last Sq of the n keys, query i sees key j where j <= i + n - Sq;
            "top-left": where j <= i.
        query_lengths: `[B]` int32, m from 0 to Sq: the rows that count, which the diagonal of "bottom-right" ends with; O of the
            others is 0 and their LSE -inf. Not together with `tree`.
        window: (left, right), each None or >= 0: query i also sees no key before p - left and none after p + right, p being
            i + n - Sq where `causal` is "bottom-right", else i. Keys before the windows of all queries are not read.
        key_lengths: `[B]` int32, n from 0 to the room for keys (by default all of it). Keys from there on are not read.
            Checked on the CPU, clamped on a GPU.
        block_table: `[B, pages of a sequence]` int32, last stride 1: key j of sequence b is slot j % page_size of page
            `block_table[b, j // page_size]`. Any page size from 1; one that is a multiple of the tile of keys
            (`config.block_n`) takes one entry per tile. Entries that only keys need that are not read may hold anything;
            the others are checked on the CPU alone.
        tree: the queries are the nodes of a tree, the last Sq of the n keys are the same nodes. A node sees all n - Sq keys
            before them, itself and its ancestors; with a Bitmap of `[B or 1, Hq or 1, Sq, Sq]` node i sees the nodes of its
            bits. Together with `causal="bottom-right"` and then with a `window`, which count rows: node i stands at key n - Sq + i.
        softcap: as in `attention`, and so are `alibi_slopes`, and `sink`, which is merged as one more split.
        alibi_slopes: `[Hq]` fp32.
        bias: `[B or 1, Hq or 1, Sq, Sk]`, as in `attention`; with a `block_table` Sk is the room for keys, pages times their size.
        sink: `[Hq]` fp32.
        n_splits: from 1 to 1024; by default the fewest that fill the device.
        precision: of the dot products of fp32 inputs; without effect on fp16 and bf16.
        layout: order of the axes of q, of contiguous k and v and of the output: "bhsd" as above, or "bshd".
        return_lse: also return the LSE.
        config: a launch configuration that replaces the default; `block_m` counts packed rows.
        allow_interpreted_bf16: as in `attention`.

    Returns:
        O, `[B, Hq, Sq, Dv]` in the layout and dtype of q; with `return_lse` also the natural-log LSE, `[B, Hq, Sq]` fp32 in
        both layouts. A query that sees no key has O = 0 and LSE = -inf.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    check_names("decode", options, _ACCEPTED)
    o, lse = (_operator if dispatched(q, k, v) else decode_forward)(q, k, v, DecodeOptions.of(options))
    return (o, lse) if return_lse else o


def decode_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """O and the natural LSE."""
    if torch.is_grad_enabled() and any(
        isinstance(x, torch.Tensor) and x.requires_grad for x in (q, k, v, options.bias)
    ):
        check_decode(q, k, v, options)  # refuses it; no key of a plan knows what requires gradients
    found = decode_parts(q, k, v, options)
    return found.o, found.lse


@planned(tensors=3)
def decode_parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: DecodeOptions) -> DecodeResult:
    """Check, allocate and launch."""
    call = check_decode(q, k, v, options)
    perm = axes(options.layout)
    shape = (call.batch, call.heads, call.sq, call.dv)
    o = torch.empty([shape[a] for a in perm], dtype=q.dtype, device=q.device)
    lse = torch.empty(shape[:3], dtype=torch.float32, device=q.device)
    parts = _launch(q, k, v, o.permute(perm), lse, options, call) if o.numel() else (None, None)
    return DecodeResult(o, lse, *parts)


def _operator(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same through the dispatcher, which does not tell the operator whether gradients are recorded."""
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        check_decode(q, k, v, options)
    try:
        values = flatten_decode(options)
    except NotPlainError:
        check_decode(q, k, v, options)
        raise
    o, lse = ops.decode(q, k, v, *values)
    return o, lse


def _launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    options: DecodeOptions,
    call: CheckedDecode,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Both phases, into `o` (axes b, h, s, c) and `lse`; the parts, and None where a single split without a sink writes there itself."""
    perm = axes(options.layout)
    inner = perm if options.block_table is None else (0, 2, 1, 3)
    q, k, v = q.permute(perm), k.permute(inner), v.permute(inner)
    sink = call.terms.sink
    whole = call.splits == 1 and sink is None
    parts, parts_lse = o[None], lse[None]
    if not whole:
        count = call.splits + (sink is not None)
        parts = torch.empty((count, *o.shape), dtype=torch.float32, device=o.device)
        parts_lse = torch.empty((count, *lse.shape), dtype=torch.float32, device=o.device)
    table, mask = options.block_table, call.mask
    constants = launch_constants(
        call.config,
        d=call.d,
        dv=call.dv,
        page_size=call.page_size,
        aligned=aligned(q, k, v, parts),
        mask=mask.flags,
        precision=call.precision,
    )
    with torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext():
        launched(
            decode_kernel,
            call.programs,
            q_view=view(q),
            k_view=view(k),
            v_view=view(v),
            o_view=part_view(parts),
            lse_ptr=parts_lse,
            lse_scale=_LN_2 if whole else 1.0,
            q_lengths_ptr=options.query_lengths,
            k_lengths_ptr=options.key_lengths,
            pages=PageTable(table, 0 if table is None else table.stride(0), call.page_size),
            batch=call.batch,
            splits=call.splits,
            sizes=Sizes(
                heads=call.heads,
                kv_heads=call.kv_heads,
                group=call.group,
                sq=call.sq,
                sk=call.sk,
                d8=call.d // 8,
                dv8=call.dv // 8,
            ),
            mask=mask_parts(mask, "forward"),
            terms=logit_terms(call, "dq"),  # without the sink
            **constants,
        )
    if sink is not None:
        _take_sink(parts, parts_lse, sink)
    if whole:
        return None, None
    launch_merge(parts, parts_lse, o, lse, base2=True, lse_scale=_LN_2)
    return parts, parts_lse


def _take_sink(parts: torch.Tensor, lse2: torch.Tensor, sink: torch.Tensor) -> None:
    """Writes the last part: a sink has no value, and rows that see no key in any other part have none.

    Args:
        parts: `[splits + 1, B, Hq, Sq, Dv]` fp32.
        lse2: `[splits + 1, B, Hq, Sq]` fp32, base 2.
        sink: `[Hq]` fp32, natural units.
    """
    largest = torch.finfo(torch.float32).max
    sink2 = (sink * _LOG2_E).clamp(-largest, largest)[:, None]
    parts[-1] = 0.0
    lse2[-1] = torch.where((lse2[:-1] != -torch.inf).any(0), sink2, -torch.inf)
