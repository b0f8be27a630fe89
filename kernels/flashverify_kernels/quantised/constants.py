"""The compile key of the kernels of quantised K and V."""

from dataclasses import replace
from typing import Any

import torch
import triton.language as tl

from flashverify_kernels.config import SHARED_MEMORY, LaunchConfig, padded_dim
from flashverify_kernels.decode_config import decode_config
from flashverify_kernels.device.quantised.codes import FOLDED, FP8_WEIGHTS, OPERAND
from flashverify_kernels.options import Precision
from flashverify_kernels.quantised.cache import FORMATS

MODES = {"operand": OPERAND, "folded": FOLDED, "fp8": FP8_WEIGHTS}
_ROWS, _MIDDLE = 64, 128
_LEAST = {"int4": 32}
"""Elements of a product of codes, where 16 are too few: Triton 3.6 computes products of unpacked bytes over fewer than 32 wrong."""
_TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def quantised_decode_config(*, codes: str, rows: int, **tiles: Any) -> LaunchConfig:
    """Choose the launch configuration of decoding: that of `decode_config`, with tiles that codes of the format `codes` allow."""
    if codes in _LEAST:
        tiles["least_keys"] = _LEAST[codes]
    return decode_config(rows=rows, **tiles)


def prefill_config(
    *, codes: str, d: int, dv: int, dtype: torch.dtype, limit: int = SHARED_MEMORY, interpreted: bool = False
) -> LaunchConfig:
    """Choose the launch configuration of the prefill: every program decodes its keys, so tiles have as many rows as fit.

    Args:
        codes: their format.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the operands.
        limit: shared memory per block of the device, bytes.
        interpreted: whether the kernels are interpreted.
    """
    many = limit >= SHARED_MEMORY and dtype != torch.float32 and max(padded_dim(d), padded_dim(dv)) <= _MIDDLE
    if many and not interpreted:
        return LaunchConfig(block_m=128, block_n=64, num_warps=8, num_stages=3)
    tiles: dict[str, Any] = {"d": d, "dv": dv, "dtype": dtype, "limit": limit, "interpreted": interpreted}
    config = quantised_decode_config(codes=codes, rows=_ROWS, **tiles)
    return replace(config, num_stages=min(config.num_stages, 2))


def quantised_constants(
    config: LaunchConfig,
    *,
    d: int,
    dv: int,
    aligned: bool,
    mask: int,
    codes: str,
    mode: str,
    one_k: bool,
    scale_last: bool,
    words: bool,
    dtype: torch.dtype | None,
    precision: Precision,
) -> dict[str, Any]:
    """The constexpr arguments and the options of a launch; with the dtypes and the presence of pointers, the compile key.

    Args:
        config: tiles, warps and stages.
        d: head dimension of q and k.
        dv: head dimension of v.
        aligned: whether every row of q and O starts on 16 bytes.
        mask: parts of the mask.
        codes: the format of the codes.
        mode: how codes become numbers.
        one_k: whether one scale of K serves a head and multiplies the logit.
        scale_last: whether the scale of V multiplies the result.
        words: whether every row of codes starts on 16 bytes.
        dtype: of the operands where q is codes, else None.
        precision: of the dot products of fp32 inputs.
    """
    width, wide_v = (max(padded_dim(dim), _LEAST.get(codes, 0)) for dim in (d, dv))
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_D": width,
        "BLOCK_DV": wide_v,
        "EVEN_D": d == width,
        "EVEN_DV": dv == wide_v,
        "ALIGNED": aligned,
        "MASK": mask,
        "FORMAT": FORMATS[codes].value,
        "MODE": MODES[mode].value,
        "ONE_K": one_k,
        "SCALE_LAST": scale_last,
        "DTYPE": None if dtype is None else _TYPES[dtype],
        "WORDS": words,
        "PRECISION": precision,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "enable_fp_fusion": False,  # see `online_step`
    }
