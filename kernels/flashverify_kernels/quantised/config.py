"""Launch configuration of the kernels over codes, chosen by a plain function."""

from dataclasses import replace
from typing import Any

import torch

from flashverify_kernels.config import LaunchConfig, padded_dim
from flashverify_kernels.decode_config import decode_config

_MANY = 128
"""Rows of a tile that share what it costs to decode the codes of a tile of keys."""


def prefill_config(
    *, d: int, dv: int, dtype: torch.dtype, rows: int, interpreted: bool = False, **device: Any
) -> LaunchConfig:
    """Choose the launch configuration of `quantised_attention`: that of decoding many rows, and taller tiles where there are rows for them.

    Args:
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: in which is computed.
        rows: queries, of which only the class (128 or more) is used.
        interpreted: whether the kernels are interpreted.
        device: further arguments of `decode_config`.
    """
    config = decode_config(d=d, dv=dv, dtype=dtype, rows=_MANY // 2, interpreted=interpreted, **device)
    narrow = max(padded_dim(d), padded_dim(dv)) <= _MANY
    if rows < _MANY or interpreted or not narrow or dtype == torch.float32:
        return config
    return replace(config, block_m=_MANY, num_warps=8, num_stages=3)
