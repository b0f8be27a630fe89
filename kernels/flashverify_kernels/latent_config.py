"""Launch configuration of the kernel over a latent cache, chosen by a plain function, and its constexpr arguments."""

from typing import Any

import torch

from flashverify_kernels.config import HOPPER, SHARED_MEMORY, LaunchConfig, padded_dim
from flashverify_kernels.device.pages import CONTIGUOUS, SCATTERED, WHOLE_TILES
from flashverify_kernels.options import Precision

_WIDE, _MIDDLE = 256, 128
_FEW_ROWS = 32
_HOPPER_TILE, _HOPPER_STAGES = 64, 2


def latent_config(
    *,
    dv: int,
    rope: int,
    dtype: torch.dtype,
    rows: int,
    capability: tuple[int, int] | None = None,
    interpreted: bool = False,
) -> LaunchConfig:
    """Choose the launch configuration.

    The accumulator, `block_m` x dv in fp32, fills the registers of the warps; a tile of keys is kept once for both products.

    Args:
        dv: latent channels.
        rope: channels of the rotary part.
        dtype: of the inputs.
        rows: packed rows, query heads per kv head times queries, of which only the class (16, 32 or more) is used.
        capability: compute capability of the device; None where none is asked, which is answered as any but a Hopper GPU.
        interpreted: whether the kernels are interpreted.
    """
    short = rows <= 16 or dtype == torch.float32
    block_m = 16 if short else 32
    if interpreted:
        return LaunchConfig(block_m=block_m, block_n=64)
    width = padded_dim(dv) + (padded_dim(rope) if rope else 0)
    held = dtype.itemsize * width * _HOPPER_TILE * (1 + _HOPPER_STAGES)
    if capability == HOPPER and not short and rows > _FEW_ROWS and held <= SHARED_MEMORY:
        warps = 8 if padded_dim(dv) > _MIDDLE else 4
        return LaunchConfig(block_m=_HOPPER_TILE, block_n=_HOPPER_TILE, num_warps=warps, num_stages=_HOPPER_STAGES)
    wide = dv > _WIDE
    block_n = 16 if wide and dtype == torch.float32 else 32 if wide or dtype == torch.float32 else 64
    return LaunchConfig(block_m=block_m, block_n=block_n, num_warps=8 if wide else 4, num_stages=2)


def launch_constants(
    config: LaunchConfig, *, dv: int, rope: int, page_size: int, aligned: bool, mask: int, precision: Precision
) -> dict[str, Any]:
    """The constexpr arguments and the options of a launch.

    Args:
        config: tiles, warps and stages.
        dv: latent channels.
        rope: channels of the rotary part.
        page_size: keys per page, 0 without pages.
        aligned: whether every row starts on 16 bytes.
        mask: parts of the mask.
        precision: of the dot products of fp32 inputs.
    """
    paged = SCATTERED if page_size % config.block_n else WHOLE_TILES if page_size else CONTIGUOUS
    block_r = padded_dim(rope) if rope else 0
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_DV": padded_dim(dv),
        "BLOCK_R": block_r,
        "EVEN_DV": dv == padded_dim(dv),
        "EVEN_R": rope == block_r,
        "ALIGNED": aligned,
        "MASK": mask,
        "PAGED": paged.value,
        "PRECISION": precision,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "enable_fp_fusion": False,  # see `online_step`
    }
