"""Launch configurations: tile sizes, warps and pipeline stages, chosen by a plain function."""

from dataclasses import dataclass, replace
from typing import Literal

import torch

from flashverify_kernels.device.mask import BITS, LOWER, SPARSE, UPPER
from flashverify_kernels.fastest import fastest
from flashverify_kernels.mask_kinds import mask_flags

Kind = Literal["forward", "dq", "dkdv"]
Pairs = Literal["plain", "terms", "bias"]
"""What is done per query and key: a scaled dot product, further terms (softcap, ALiBi, dropout), a bias among them."""

SHARED_MEMORY = 227 * 1024
"""Shared memory per block of an H100 or H200, bytes: the limit where no device is asked."""

_SHORT = 16
_WIDE = 128
_SMALLEST = 16
_WARP_GROUP = 64  # rows of the products of four warps together


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """How one kernel is launched.

    Attributes:
        block_m: queries per tile, a power of two from 16 to 256.
        block_n: keys per tile, a power of two from 16 to 256.
        num_warps: warps per program, a power of two up to 16.
        num_stages: depth of the software pipeline, 1 to 8.
        descriptors: whether the copy engine fetches the tiles that the loop walks, where the tensors allow it (see `tiles`); the
            results are the same, bit for bit.
        hopper: whether the kernels for Hopper GPUs compute it where the problem and the GPU allow it (see `hopper`), the forward in tiles
            of 128 keys alone. They have their own warps, stages and tiles of queries; under equal tiles of keys the results are the
            same, bit for bit.
    """

    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 2
    descriptors: bool = False
    hopper: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Configs:
    """Overrides of the launch configurations by kernel; None keeps the default."""

    forward: LaunchConfig | None = None
    dq: LaunchConfig | None = None
    dkdv: LaunchConfig | None = None


HOPPER = (9, 0)
"""The compute capability of the GPUs for which there are kernels of their own, H100 and H200."""
_FETCHED = (("forward", 128), ("dq", 64), ("dq", 128))
"""Kernels and widths whose tiles descriptors fetch faster than pointers do (H200, `benchmarks/gpu_schedules.py`)."""
_WHOLE = {
    64: LaunchConfig(block_m=64, block_n=128, num_warps=4, num_stages=2, descriptors=True),
    128: LaunchConfig(block_m=128, block_n=128, num_warps=8, num_stages=2, descriptors=True),
}
"""The forward in the tiles of keys of the kernels for Hopper GPUs, by head dimension."""


def padded_dim(dim: int) -> int:
    """Channels of a tile that holds `dim` channels: the next power of two, at least 16."""
    return max(16, 1 << (dim - 1).bit_length())


def launch_config(
    kind: Kind,
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    mask: str | int,
    sq: int,
    blocks: tuple[int, int] | None = None,
    pairs: Pairs = "plain",
    limit: int = SHARED_MEMORY,
    whole: bool = True,
    packed: bool = False,
    capability: tuple[int, int] | None = None,
    hopper: bool = True,
    interpreted: bool = False,
) -> LaunchConfig:
    """Choose the launch configuration of a kernel.

    The choice depends on nothing but the head dimensions, the dtype, the kind of mask, the length class of the queries
    (up to 16, or more), whether there are lengths, the device, and on a Hopper GPU whether its own kernels may be taken: never on batch,
    heads or neighbours, so that results do not depend on them either.

    Args:
        kind: which kernel.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        mask: kinds or flags of the mask, see `mask_flags`.
        sq: number of queries, of which only the length class is used; of packed sequences, the longest one's.
        blocks: queries and keys per block of a block-sparse mask: tiles divide blocks.
        pairs: what is done per query and key; more than a dot product takes smaller tiles, to stay in registers.
        limit: shared memory per block of the device, bytes.
        whole: whether every row of the tensors counts: no lengths and no packed sequences.
        packed: whether sequences are packed, which the kernels for Hopper GPUs take too, at a head dimension of 64 those of dK and dV.
        capability: compute capability of the device; None where none is asked, which is answered as any but a Hopper GPU.
        hopper: whether the call is one that the kernels for Hopper GPUs may be asked for on such a GPU, see `hopper.may_be_asked`.
        interpreted: whether the kernels are interpreted, where a few large tiles are fastest.
    """
    if interpreted:
        config = LaunchConfig(block_m=64, block_n=64)
    else:
        width, flags = max(padded_dim(d), padded_dim(dv)), mask_flags(mask)
        config = _compiled(kind, width, dtype, flags)
        if dtype != torch.float32:
            if pairs != "plain":
                config = _with_room(kind, width, config, pairs)
            elif not flags & (BITS.value | SPARSE.value):
                config = replace(config, descriptors=(kind, width) in _FETCHED)
                band = not flags & ~(UPPER.value | LOWER.value) and (whole or packed) and sq > _SHORT
                if band and d == dv in _WHOLE and limit >= SHARED_MEMORY:
                    taken = d == _WIDE or kind == "dkdv" or (kind == "forward" and whole)
                    asked = capability == HOPPER and hopper and taken
                    narrow = whole and (d, dtype, flags & LOWER.value) == (64, torch.float16, 0)
                    wide = kind == "forward" and (asked or narrow)
                    config = replace(_WHOLE[d] if wide else config, hopper=asked)
            if pairs == "plain" and d == dv and whole and sq > _SHORT and limit >= SHARED_MEMORY:
                config = replace(config, **fastest(kind, d, flags, blocks, capability == HOPPER and hopper))
    if sq <= _SHORT:
        config = replace(config, block_m=16, num_warps=4, descriptors=False)
    if blocks is not None:
        rows, keys = (size & -size for size in blocks)  # the largest powers of two that divide them
        config = replace(config, block_m=min(config.block_m, rows), block_n=min(config.block_n, keys))
    while shared_memory(kind, config, d=d, dv=dv, dtype=dtype, pairs=pairs) > limit:
        if config.num_stages > 1:
            config = replace(config, num_stages=config.num_stages - 1)
        elif max(config.block_m, config.block_n) > _SMALLEST:
            config = replace(
                config, block_m=max(config.block_m // 2, _SMALLEST), block_n=max(config.block_n // 2, _SMALLEST)
            )
        else:
            break
    return config


def _compiled(kind: Kind, width: int, dtype: torch.dtype, mask: int) -> LaunchConfig:
    """The configuration for many queries on a GPU with enough shared memory."""
    if dtype == torch.float32:
        if width <= 64:
            return LaunchConfig(block_m=32, block_n=32, num_warps=4, num_stages=2)
        if width <= 128:
            return LaunchConfig(block_m=32, block_n=32, num_warps=8, num_stages=1)
        return LaunchConfig(block_m=16, block_n=16, num_warps=4, num_stages=1)
    bits = bool(mask & BITS.value)  # a word per pair takes the registers of larger tiles
    if width <= 64:
        if bits:
            return LaunchConfig(block_m=64, block_n=64, num_warps=4, num_stages=3 if kind == "forward" else 2)
        if kind == "forward":
            return LaunchConfig(block_m=128, block_n=64, num_warps=8, num_stages=3)
        return LaunchConfig(block_m=128, block_n=64, num_warps=4, num_stages=4 if kind == "dq" else 1)
    if width <= 128:
        if kind == "dq":
            return LaunchConfig(block_m=128, block_n=64, num_warps=8, num_stages=2 if bits else 3)
        if kind == "forward" or bits:
            return LaunchConfig(block_m=64, block_n=64, num_warps=4, num_stages=2 if bits else 3)
        return LaunchConfig(block_m=64, block_n=128, num_warps=8, num_stages=1)
    if kind == "dkdv":
        return LaunchConfig(block_m=32, block_n=64, num_warps=8, num_stages=2)
    return LaunchConfig(block_m=64, block_n=32, num_warps=4, num_stages=2)


def _with_room(kind: Kind, width: int, config: LaunchConfig, pairs: Pairs) -> LaunchConfig:
    """Smaller tiles, whose loops keep further terms of a pair in registers."""
    if kind == "dkdv":
        small = replace(config, block_m=min(config.block_m // 2, 32), block_n=min(config.block_n, 64), num_stages=2)
        return replace(small, num_warps=8 if width > 64 else config.num_warps)
    if kind == "dq" and width <= 64:
        config = replace(config, block_m=min(config.block_m, 64), num_stages=min(config.num_stages, 2))
    if pairs == "bias" and (kind == "dq" or width > 64):
        return replace(config, block_n=min(config.block_n, 32))
    return config


def shared_memory(
    kind: Kind, config: LaunchConfig, *, d: int, dv: int, dtype: torch.dtype, pairs: Pairs = "plain"
) -> int:
    """Estimate the shared memory of a launch, bytes: the resident tiles, and one copy of the streamed ones per stage."""
    m, n = config.block_m, config.block_n
    wide, stages = dtype == torch.float32, config.num_stages
    queries = m * (padded_dim(d) + (0 if kind == "forward" else padded_dim(dv)))
    keys = n * (padded_dim(d) + padded_dim(dv))
    resident, streamed = (keys, queries) if kind == "dkdv" else (queries, keys)
    weights = m * n if wide or kind == "dkdv" else 0
    if wide and (n if kind == "dkdv" else m) >= _WARP_GROUP:
        resident *= 2  # a warp group reads its fp32 operands from there, each as the sum of two
        weights = m * (_WARP_GROUP + 2) if kind == "dkdv" else weights  # and P^T and dS^T, its rows at a time
    elif wide:
        stages = max(stages, 2)
    elif kind == "dkdv" and n < _WARP_GROUP:
        weights += 32 * padded_dim(dv)  # rows of dO in another layout
    # a bias in fp32 is staged, and one tile of words, biases or gradients changes its layout
    logits = 0 if pairs == "plain" else 4 * m * n * (1 + (config.num_stages if dtype == torch.float32 else 0))
    return dtype.itemsize * (resident + stages * streamed + weights) + logits


def config_error(
    kind: Kind,
    config: LaunchConfig,
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    blocks: tuple[int, int] | None = None,
    pairs: Pairs = "plain",
    limit: int = SHARED_MEMORY,
) -> str | None:
    """Why `config` cannot be launched, or None if it can.

    Args:
        kind: which kernel.
        config: the configuration.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        blocks: queries and keys per block of a block-sparse mask, or None.
        pairs: what is done per query and key.
        limit: shared memory per block of the device, bytes.
    """
    for name in ("block_m", "block_n", "num_warps"):
        value = getattr(config, name)
        low, high = (1, 16) if name == "num_warps" else (_SMALLEST, 256)
        if not isinstance(value, int) or not low <= value <= high or value & (value - 1):
            return f"{name}: expected a power of two from {low} to {high}, got {value!r}"
    if not isinstance(config.num_stages, int) or not 1 <= config.num_stages <= 8:
        return f"num_stages: expected 1 to 8, got {config.num_stages!r}"
    for name, value in (("descriptors", config.descriptors), ("hopper", config.hopper)):
        if not isinstance(value, bool):
            return f"{name}: expected True or False, got {value!r}"
    least = min(config.block_m, config.block_n)
    if config.hopper and least < _WARP_GROUP:  # below, a product is another instruction, which sums in another order
        return f"hopper: True goes with block_m and block_n of {_WARP_GROUP} or more, got {least}"
    for name, size in zip(("block_m", "block_n"), blocks or (), strict=False):
        if size % getattr(config, name):
            return f"{name}: expected a divisor of the {size} positions of a block of the mask, got {getattr(config, name)}"
    need = shared_memory(kind, config, d=d, dv=dv, dtype=dtype, pairs=pairs)
    if need > limit:
        return f"about {need} bytes of shared memory needed, {limit} available: take smaller tiles or fewer stages"
    return None
