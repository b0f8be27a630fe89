"""What launches of the kernels of quantised K and V would compile, for a look at them without a GPU."""

from typing import Any

import torch

from flashverify_kernels.device.quantised.attention import quantised_decode_kernel, quantised_forward_kernel
from flashverify_kernels.mask_kinds import mask_flags
from flashverify_kernels.options import Precision
from flashverify_kernels.quantised.constants import prefill_config, quantised_constants, quantised_decode_config
from flashverify_kernels.signature import Source, source_of

_DECODE_ROWS = 8


def quantised_source(
    *,
    decode: bool,
    d: int,
    dtype: torch.dtype,
    codes: str,
    mode: str,
    scale_last: bool,
    zeros: bool = False,
    mask: str = "none",
    aligned: bool = True,
    paged: bool = False,
    precision: Precision = "ieee",
) -> Source:
    """What a launch would compile.

    Args:
        decode: of `quantised_decode` with several splits, or of `quantised_attention`.
        d: head dimension.
        dtype: of q.
        codes: the format of K and V.
        mode: how codes become numbers.
        scale_last: whether one scale serves a head: that of V multiplies the result, that of K the logit.
        zeros: whether there are zero points.
        mask: kinds of mask joined by "+", see `config.mask_flags`.
        aligned: whether strides and pointers are aligned, those of codes to 16 bytes.
        paged: whether the codes lie in pages.
        precision: of the products of fp32.
    """
    kernel: Any = quantised_decode_kernel if decode else quantised_forward_kernel
    tiles: dict[str, Any] = {"codes": codes, "d": d, "dv": d, "dtype": dtype}
    config = quantised_decode_config(rows=_DECODE_ROWS, **tiles) if decode else prefill_config(**tiles)
    found = quantised_constants(
        config,
        d=d,
        dv=d,
        aligned=aligned,
        mask=mask_flags(mask),
        codes=codes,
        mode=mode,
        one_k=scale_last,
        scale_last=scale_last,
        words=aligned,
        dtype=None,
        precision=precision,
    )
    names = set(kernel.arg_names)
    absent = {
        "mask.bits.ptr",
        "mask.blocks.ptr",
        "mask.prefix_lengths",
        "q_scale.ptr",
        *(() if paged else ("k_codes.pages.ptr", "v_codes.pages.ptr")),
        *(() if zeros else ("k_codes.zero.ptr", "v_codes.zero.ptr")),
    }
    return source_of(
        kernel,
        {name: value for name, value in found.items() if name in names},
        {name: value for name, value in found.items() if name not in names},
        lambda path: path not in absent,
        dtype,
        {"o_view.ptr": torch.float32} if decode else None,
    )
