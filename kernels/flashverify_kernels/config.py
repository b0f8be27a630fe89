"""Launch configurations: tile sizes, warps and pipeline stages, chosen by a plain function."""

from dataclasses import dataclass, replace
from typing import Literal

import torch

Kind = Literal["forward", "dq", "dkdv"]
MaskKind = Literal["none", "causal", "tree"]

SHARED_MEMORY = 227 * 1024
"""Shared memory per block of an H100 or H200, bytes: the limit where no device is asked."""

_SHORT = 16
_SMALLEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """How one kernel is launched.

    Attributes:
        block_m: queries per tile, a power of two from 16 to 256.
        block_n: keys per tile, a power of two from 16 to 256.
        num_warps: warps per program, a power of two up to 16.
        num_stages: depth of the software pipeline, 1 to 8.
    """

    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Configs:
    """Overrides of the launch configurations by kernel; None keeps the default."""

    forward: LaunchConfig | None = None
    dq: LaunchConfig | None = None
    dkdv: LaunchConfig | None = None


def padded_dim(dim: int) -> int:
    """Channels of a tile that holds `dim` channels: the next power of two, at least 16."""
    return max(16, 1 << (dim - 1).bit_length())


def launch_config(
    kind: Kind,
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    mask: MaskKind,
    sq: int,
    limit: int = SHARED_MEMORY,
    interpreted: bool = False,
) -> LaunchConfig:
    """Choose the launch configuration of a kernel.

    The choice depends on nothing but the head dimensions, the dtype, the kind of mask, the length class of the queries
    (up to 16, or more) and the device: never on batch, heads or neighbours, so that results do not depend on them either.

    Args:
        kind: which kernel.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        mask: kind of mask.
        sq: number of queries, of which only the length class is used.
        limit: shared memory per block of the device, bytes.
        interpreted: whether the kernels are interpreted, where a few large tiles are fastest.
    """
    if interpreted:
        config = LaunchConfig(block_m=64, block_n=64)
    else:
        config = _compiled(kind, max(padded_dim(d), padded_dim(dv)), dtype, mask)
    if sq <= _SHORT:
        config = replace(config, block_m=16, num_warps=4)
    while shared_memory(kind, config, d=d, dv=dv, dtype=dtype) > limit:
        if config.num_stages > 1:
            config = replace(config, num_stages=config.num_stages - 1)
        elif max(config.block_m, config.block_n) > _SMALLEST:
            config = replace(
                config, block_m=max(config.block_m // 2, _SMALLEST), block_n=max(config.block_n // 2, _SMALLEST)
            )
        else:
            break
    return config


def _compiled(kind: Kind, width: int, dtype: torch.dtype, mask: MaskKind) -> LaunchConfig:
    """The configuration for many queries on a GPU with enough shared memory."""
    if dtype == torch.float32:
        if width <= 64:
            return LaunchConfig(block_m=32, block_n=32, num_warps=4, num_stages=2)
        if width <= 128:
            return LaunchConfig(block_m=32, block_n=32, num_warps=8, num_stages=1)
        return LaunchConfig(block_m=16, block_n=16, num_warps=4, num_stages=1)
    if width <= 64:
        return LaunchConfig(block_m=64, block_n=64, num_warps=4, num_stages=3 if kind == "forward" else 2)
    if width <= 128:
        if kind == "dq":
            return LaunchConfig(block_m=128, block_n=64, num_warps=8, num_stages=2 if mask == "tree" else 3)
        return LaunchConfig(block_m=64, block_n=64, num_warps=4, num_stages=2)
    if kind == "dkdv":
        return LaunchConfig(block_m=32, block_n=64, num_warps=8, num_stages=2)
    return LaunchConfig(block_m=64, block_n=32, num_warps=4, num_stages=2)


def shared_memory(kind: Kind, config: LaunchConfig, *, d: int, dv: int, dtype: torch.dtype) -> int:
    """Estimate the shared memory of a launch, bytes: the resident tiles, and one copy of the streamed ones per stage."""
    m, n = config.block_m, config.block_n
    stages = max(config.num_stages, 2) if dtype == torch.float32 else config.num_stages  # fp32 operands are staged too
    queries = m * (padded_dim(d) + (0 if kind == "forward" else padded_dim(dv)))
    keys = n * (padded_dim(d) + padded_dim(dv))
    resident, streamed = (keys, queries) if kind == "dkdv" else (queries, keys)
    weights = m * n if kind == "dkdv" else 0
    return dtype.itemsize * (resident + stages * streamed + weights)


def config_error(
    kind: Kind, config: LaunchConfig, *, d: int, dv: int, dtype: torch.dtype, limit: int = SHARED_MEMORY
) -> str | None:
    """Why `config` cannot be launched, or None if it can.

    Args:
        kind: which kernel.
        config: the configuration.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        limit: shared memory per block of the device, bytes.
    """
    for name in ("block_m", "block_n", "num_warps"):
        value = getattr(config, name)
        low, high = (1, 16) if name == "num_warps" else (_SMALLEST, 256)
        if not isinstance(value, int) or not low <= value <= high or value & (value - 1):
            return f"{name}: expected a power of two from {low} to {high}, got {value!r}"
    if not isinstance(config.num_stages, int) or not 1 <= config.num_stages <= 8:
        return f"num_stages: expected 1 to 8, got {config.num_stages!r}"
    need = shared_memory(kind, config, d=d, dv=dv, dtype=dtype)
    if need > limit:
        return f"about {need} bytes of shared memory needed, {limit} available: take smaller tiles or fewer stages"
    return None
