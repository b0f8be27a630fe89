"""Launch configuration and number of splits of the decoding kernel, chosen by plain functions."""

import functools
from dataclasses import replace
from typing import Any

import torch

from flashverify_kernels.config import SHARED_MEMORY, LaunchConfig, Pairs, padded_dim, shared_memory
from flashverify_kernels.device.pages import CONTIGUOUS, SCATTERED, WHOLE_TILES
from flashverify_kernels.options import Precision
from flashverify_kernels.runtime import shared_memory_limit

PROCESSORS = 132
"""Multiprocessors of an H100 or H200: the number where no device is asked."""
MAX_SPLITS = 1024

_SMALLEST = 16
_FEWEST_KEYS = 128  # a split shorter than this costs more in its partial result than it saves
_MOST_CHOSEN = 128
_ENOUGH = 0.85


def decode_config(
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    rows: int,
    pairs: Pairs = "plain",
    limit: int = SHARED_MEMORY,
    interpreted: bool = False,
    least_keys: int = _SMALLEST,
) -> LaunchConfig:
    """Choose the launch configuration of the decoding kernel.

    A stage holds about 32 KiB of K and V; three of them, twice on a multiprocessor, keep its share of the memory busy.

    Args:
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        rows: packed rows, query heads per kv head times queries, of which only the class (16, 32 or more) is used.
        pairs: what is done per query and key.
        limit: shared memory per block of the device, bytes.
        interpreted: whether the kernels are interpreted.
        least_keys: of a tile.
    """
    width = max(padded_dim(d), padded_dim(dv))
    short = rows <= 16 or dtype == torch.float32  # fp32 products take registers in proportion to the rows
    block_m = 16 if short else 32 if rows <= 32 or width > 128 else 64
    block_n = min(max(2**14 // (width * dtype.itemsize), least_keys), 128 if short else 64)
    if pairs != "plain":  # further terms of a pair stay in registers
        block_n = max(block_n // 2, least_keys)
    num_warps = 4 if short and dtype != torch.float32 else 8
    config = LaunchConfig(block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=3)
    if interpreted:
        config = LaunchConfig(block_m=block_m, block_n=64)
    while shared_memory("forward", config, d=d, dv=dv, dtype=dtype, pairs=pairs) > limit:
        if config.num_stages > 1:
            config = replace(config, num_stages=config.num_stages - 1)
        elif config.block_n > least_keys:
            config = replace(config, block_n=config.block_n // 2)
        else:
            break
    return config


@functools.lru_cache(maxsize=1024)  # the search takes as long as a launch
def decode_splits(*, keys: int, programs: int, resident: int = 2 * PROCESSORS) -> int:
    """Choose the number of parts that the keys are split into: the fewest that keep the device nearly full.

    The choice depends on batch, heads and device, and with it the rounding of the result; give `n_splits` where results have
    to be the same for every batch and device.

    Args:
        keys: the most keys of a sequence.
        programs: programs without splits: batch * kv heads * tiles of packed rows.
        resident: programs that the device runs at once.

    Returns:
        From 1 to 128; a split has 128 keys or more.
    """
    most = min(max(keys // _FEWEST_KEYS, 1), _MOST_CHOSEN)
    if programs == 0:
        return 1

    def used(splits: int) -> float:
        waves = programs * splits / resident
        return waves / -(-programs * splits // resident)

    best = max(used(n) for n in range(1, most + 1))
    return next(n for n in range(1, most + 1) if used(n) >= _ENOUGH * best)


def resident_programs(
    config: LaunchConfig, device: torch.device, *, d: int, dv: int, dtype: torch.dtype, pairs: Pairs = "plain"
) -> int:
    """Programs that `device` runs at once: as many per multiprocessor as fit into its shared memory, at most two."""
    need = shared_memory("forward", config, d=d, dv=dv, dtype=dtype, pairs=pairs)
    processors = PROCESSORS
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    return processors * max(min(shared_memory_limit(device) // need, 2), 1)


def launch_constants(
    config: LaunchConfig, *, d: int, dv: int, page_size: int, aligned: bool, mask: int, precision: Precision
) -> dict[str, Any]:
    """The constexpr arguments and the options of a launch; with the dtypes and the presence of pointers, the compile key.

    Args:
        config: tiles, warps and stages.
        d: head dimension of q and k.
        dv: head dimension of v.
        page_size: keys per page, 0 without pages. A page number is loaded two stages before its keys.
        aligned: whether every row starts on 16 bytes.
        mask: parts of the mask.
        precision: of the dot products of fp32 inputs.
    """
    paged = SCATTERED if page_size % config.block_n else WHOLE_TILES if page_size else CONTIGUOUS
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_D": padded_dim(d),
        "BLOCK_DV": padded_dim(dv),
        "EVEN_D": d == padded_dim(d),
        "EVEN_DV": dv == padded_dim(dv),
        "ALIGNED": aligned,
        "MASK": mask,
        "PAGED": paged.value,
        "PRECISION": precision,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages + (2 if page_size and config.num_stages > 1 else 0),
        "enable_fp_fusion": False,  # see `online_step`
    }
