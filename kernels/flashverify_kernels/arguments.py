"""From a checked call and its tensors to the keyword arguments of the kernels."""

from typing import Any

import torch

from flashverify_kernels.config import Kind, LaunchConfig, padded_dim
from flashverify_kernels.decode_validation import CheckedDecode
from flashverify_kernels.device.arguments import (
    Blocks,
    DropoutDraws,
    LogitTerms,
    MaskParts,
    Relative,
    Sequences,
    Sizes,
    Statistics,
    View,
    Words,
)
from flashverify_kernels.device.mask import BITS
from flashverify_kernels.dropout import Dropout
from flashverify_kernels.masking import Mask
from flashverify_kernels.options import Options, Precision
from flashverify_kernels.runtime import INTERPRETED
from flashverify_kernels.terms import LOG2_E
from flashverify_kernels.validation import CheckedCall, axes
from flashverify_kernels.views import strides, view

_INT32 = 2**31
_LARGEST_TILE = 256
_NARROWEST = 64


def in_order(options: Options, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors with their axes in the order (batch, head, sequence, channel)."""
    order = axes(options.layout)
    if order == (0, 1, 2, 3):
        return tensors
    return {name: x.permute(order) for name, x in tensors.items()}


def views(tensors: dict[str, torch.Tensor]) -> dict[str, View]:
    """The arguments that are tensors of rows and channels."""
    return {f"{name}_view": view(x) for name, x in tensors.items()}


def statistics(
    call: CheckedCall, *, lse2: torch.Tensor, delta: torch.Tensor | None = None, dlse: torch.Tensor | None = None
) -> Statistics:
    """The statistics of the rows, `[B, Hq, rows]` fp32 contiguous."""
    return Statistics(
        lse2=lse2,
        delta=delta,
        dlse=dlse,
        batch=0 if call.batch == 1 else call.heads * call.rows,
        head=call.rows,
    )


def sequences_of(options: Options) -> Sequences:
    """Where the rows of a sequence lie and how many count; an absent table is None and so part of the compile key."""
    packed = options.packed
    return Sequences(
        cu_q=None if packed is None else packed.cu_q,
        cu_k=None if packed is None else packed.cu_k,
        q_lengths=options.query_lengths,
        k_lengths=options.key_lengths,
        packed=0 if packed is None else packed.sequences,
        halvings=0 if packed is None else (packed.sequences - 1).bit_length(),
    )


def mask_parts(mask: Mask, kind: Kind) -> MaskParts:
    """The tables and numbers of a mask."""
    tables = None
    if mask.blocks is not None:
        tables = mask.blocks.along_queries if kind == "dkdv" else mask.blocks.along_keys
    batch, head = (0, 0) if tables is None else strides(tables)[:2]
    rows, keys = mask.block_size or (0, 0)
    return MaskParts(
        left=mask.left,
        right=mask.right,
        align_end=int(mask.align_end),
        tree=int(mask.tree),
        prefix_lengths=mask.prefix_lengths,
        bits=Words(mask.words, *((0, 0, 0) if mask.words is None else strides(mask.words))),
        blocks=Blocks(ptr=tables, batch=batch, head=head, rows=rows, keys=keys),
    )


def logit_terms(call: CheckedCall | CheckedDecode, kind: Kind) -> LogitTerms:
    """What a logit is made of; what is absent is None and so part of the compile key."""
    terms, cap, table = call.terms, call.terms.softcap, call.terms.by_distance
    return LogitTerms(
        scale=call.scale,
        scale_log2=call.scale * LOG2_E,
        cap_ratio=None if cap is None else call.scale / cap,
        cap_log2=None if cap is None else cap * LOG2_E,
        slopes=terms.slopes,
        align_distances=int(terms.align_distances),
        bias=view(terms.bias),
        sink=terms.sink if kind == "forward" else None,
        relative=Relative(table, None if table is None else table.shape[1]),
    )


def dropout_draws(drop: Dropout | None) -> DropoutDraws:
    """Which weights are dropped."""
    if drop is None:
        return DropoutDraws(None, None, 0, 0, 0)
    return DropoutDraws(
        keep_share=1 - drop.p,
        keep_scale=1 / (1 - drop.p),
        seed=drop.seed,
        offset=drop.offset,
        threshold=drop.threshold,
    )


def sizes_of(call: CheckedCall) -> Sizes:
    """The runtime sizes."""
    return Sizes(
        heads=call.heads,
        kv_heads=call.kv_heads,
        group=call.heads // max(call.kv_heads, 1),
        sq=call.sq,
        sk=call.sk,
        d8=call.d // 8,
        dv8=call.dv // 8,
    )


def records(call: CheckedCall, options: Options, kind: Kind) -> dict[str, Any]:
    """The records that forward, dq and dkdv share."""
    return {
        "sequences": sequences_of(options),
        "sizes": sizes_of(call),
        "mask": mask_parts(call.mask, kind),
        "terms": logit_terms(call, kind),
        "dropout": dropout_draws(call.terms.dropout),
    }


def constants(call: CheckedCall, kind: Kind, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The constexpr arguments and launch options of one launch."""
    config = call.configs[kind]
    return {
        **compile_constants(
            kind,
            config,
            d=call.d,
            dv=call.dv,
            aligned=rows_aligned(tensors),
            mask=call.mask.flags,
            precision=call.precision,
            interpreted=INTERPRETED,
        ),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }


def rows_aligned(tensors: dict[str, torch.Tensor]) -> bool:
    """Whether rows start on multiples of 8 elements and of 16 bytes, and every offset within a head fits an int32.

    Strides of axes of size 1 count too: the only head of a view is then read as it is among the others, and sums over channels have one order.
    """
    return all(
        x.data_ptr() % 16 == 0
        and all(stride % 8 == 0 for stride in x.stride()[:-1])
        and (x.shape[2] + _LARGEST_TILE) * x.stride(2) < _INT32
        for x in tensors.values()
    )


def compile_constants(
    kind: str,
    config: LaunchConfig,
    *,
    d: int,
    dv: int,
    aligned: bool,
    mask: int,
    precision: Precision,
    interpreted: bool = False,
) -> dict[str, Any]:
    """The constexpr arguments. With the dtypes, the presence of optional pointers, warps and stages: the compile key.

    The forward's tile of V is at least `_NARROWEST` wide where rows are not aligned, and where bits decide about tiles: the assemblers that
    come with Triton 3.6 and 3.7 lose the shared memory address of a narrower one on sm_90, and the product reads outside
    (`flashverify compile`: `undefined-register`). Seen on an H200 with bits at head dimensions 24 to 64 of q and k, 8 and 16 of v.
    """
    block_d, block_dv = padded_dim(d), padded_dim(dv)
    if kind == "forward" and not interpreted and (not aligned or mask & BITS.value):
        block_dv = max(block_dv, _NARROWEST)
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_D": block_d,
        "BLOCK_DV": block_dv,
        "EVEN_D": d == block_d,
        "EVEN_DV": dv == block_dv,
        "ALIGNED": aligned,
        "MASK": mask,
        "PRECISION": precision,
    }
