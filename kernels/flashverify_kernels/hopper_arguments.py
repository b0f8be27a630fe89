"""Arguments of the kernels for Hopper GPUs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flashverify_kernels.arguments import sequences_of
from flashverify_kernels.device.mask import LOWER
from flashverify_kernels.ragged import ragged
from flashverify_kernels.views import strides

if TYPE_CHECKING:
    import torch

    from flashverify_kernels.config import Kind
    from flashverify_kernels.options import Options
    from flashverify_kernels.validation import CheckedCall


def sizes(call: CheckedCall) -> tuple[int, int, int, int, int | None, int]:
    """Query heads, query heads per kv head, queries, keys, and from where to where around its own number a query sees."""
    mask, shift = call.mask, call.mask.align_end * (call.sk - call.sq)
    if call.packed:  # each sequence has a shift of its own
        low, high = -mask.left, mask.right
    else:
        low, high = (min(max(edge, -call.sq), call.sk) for edge in (shift - mask.left, shift + mask.right))
    lower = low if mask.flags & LOWER.value else None
    return call.heads, call.heads // call.kv_heads, call.sq, call.sk, lower, high


def blocks(call: CheckedCall, kind: Kind) -> tuple[Any, ...]:
    """The tables of the live blocks, their steps, and the size of a block; None for all of them where there is no pattern."""
    blocks = call.mask.blocks
    if blocks is None:
        return (None,) * 5
    tables = blocks.along_queries if kind == "dkdv" else blocks.along_keys
    return tables, *strides(tables)[:2], blocks.rows, blocks.keys


def sequences(call: CheckedCall, options: Options) -> tuple[Any, ...]:
    """Where packed sequences begin, their number and how often it is halved, all queries, and whether edges end at the last key; None for all of them where there are none."""
    if not call.packed:
        return (None,) * 6
    given = sequences_of(options)
    return given.cu_q, given.cu_k, given.packed, given.halvings, call.rows, int(call.mask.align_end)


def described(tensors: dict[str, torch.Tensor], packed: bool, **rows: int) -> list[Any]:
    """Descriptors of the tensors, in the order of `rows`, whose tiles have so many rows and all channels."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    found = []
    for name, count in rows.items():
        x = tensors[name]
        steps = [stride if size > 1 else x.shape[3] for stride, size in zip(x.stride(), x.shape, strict=True)][:3]
        shape = list(x.shape)
        if packed:
            shape, steps = ragged(shape, steps)
        tile = [*[1] * (len(shape) - 2), count, x.shape[3]]
        found.append(TensorDescriptor(x, shape, [*steps, 1], tile, _layout(len(shape))))
    return found


@functools.cache
def _layout(rank: int) -> Any:
    from triton.experimental.gluon.language import NVMMASharedLayout

    return NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=rank)
