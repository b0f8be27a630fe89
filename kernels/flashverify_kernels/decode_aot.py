"""What launches of the decoding and merging kernels would compile, for a look at them without a GPU."""

from collections.abc import Collection
from typing import Any

import torch

from flashverify_kernels.config import LaunchConfig, Pairs
from flashverify_kernels.decode_config import decode_config, launch_constants
from flashverify_kernels.device.decode import decode_kernel
from flashverify_kernels.device.mask import BITS
from flashverify_kernels.device.merge import merge_backward_kernel, merge_kernel
from flashverify_kernels.mask_kinds import mask_flags
from flashverify_kernels.merge import COMPILED_TILE, merge_constants
from flashverify_kernels.options import Precision
from flashverify_kernels.signature import Source, source_of

KERNELS: dict[str, Any] = {"decode": decode_kernel, "merge": merge_kernel, "merge_backward": merge_backward_kernel}


def decode_source(
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    rows: int = 8,
    mask: str = "none",
    query_lengths: bool = False,
    key_lengths: bool = True,
    terms: Collection[str] = (),
    page_size: int = 0,
    split: bool = True,
    aligned: bool = True,
    precision: Precision = "ieee",
    config: LaunchConfig | None = None,
) -> Source:
    """What a launch of the decoding kernel would compile.

    Args:
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        rows: query heads per kv head times queries, of which only the class is used.
        mask: kinds of mask joined by "+", see `config.mask_flags`.
        query_lengths: whether query lengths are given.
        key_lengths: whether key lengths are given.
        terms: `softcap`, `alibi`, `bias`: what else is done to logits.
        page_size: keys per page, 0 without pages.
        split: whether there is more than one split, whose partial outputs are fp32.
        aligned: whether strides and pointers are aligned.
        precision: of the dot products of fp32 inputs.
        config: launch configuration, by default the one of `rows`.
    """
    pairs: Pairs = "bias" if "bias" in terms else "terms" if terms else "plain"
    config = config or decode_config(d=d, dv=dv, dtype=dtype, rows=rows, pairs=pairs)
    flags = mask_flags(mask)
    constants = launch_constants(
        config, d=d, dv=dv, page_size=page_size, aligned=aligned, mask=flags, precision=precision
    )
    given = {
        "q_lengths_ptr": query_lengths,
        "k_lengths_ptr": key_lengths,
        "terms.cap_ratio": "softcap" in terms,
        "terms.cap_log2": "softcap" in terms,
        "terms.slopes": "alibi" in terms,
        "terms.bias.ptr": "bias" in terms,
        "terms.sink": False,
        "terms.relative.ptr": False,
        "terms.relative.width": False,
        "mask.bits.ptr": bool(flags & BITS.value),
        "mask.blocks.ptr": False,
        "pages.ptr": page_size > 0,
    }
    elements = {"o_view.ptr": torch.float32 if split else dtype}
    return source_of(
        decode_kernel, *split_constants(decode_kernel, constants), lambda path: given.get(path, True), dtype, elements
    )


def merge_source(
    *, parts: int, dv: int, dtype: torch.dtype, backward: bool = False, decoded: bool = False, aligned: bool = True
) -> Source:
    """What a launch of a merging kernel would compile.

    Args:
        parts: number of partials.
        dv: channels.
        dtype: of the partials, or where `decoded` of what they are merged into.
        backward: the gradients instead of the merge.
        decoded: the second phase of a decoding: partials in fp32.
        aligned: whether strides and pointers are aligned.
    """
    constants = merge_constants(parts, dv, aligned=aligned, elements=COMPILED_TILE)
    kernel = merge_backward_kernel if backward else merge_kernel
    elements = {"partials.ptr": torch.float32 if decoded else dtype}
    return source_of(kernel, *split_constants(kernel, constants), lambda _: True, dtype, elements)


def split_constants(fn: Any, constants: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The constexpr arguments and the launch options."""
    names = set(fn.arg_names)
    options = {name: value for name, value in constants.items() if name not in names}
    return {name: value for name, value in constants.items() if name in names}, options
