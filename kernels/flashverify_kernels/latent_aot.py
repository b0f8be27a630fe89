"""What launches of the kernel over a latent cache would compile, for a look at them without a GPU."""

import torch

from flashverify_kernels.decode_aot import split_constants
from flashverify_kernels.device.latent import latent_kernel
from flashverify_kernels.latent_config import latent_config, launch_constants
from flashverify_kernels.mask_kinds import mask_flags
from flashverify_kernels.options import Precision
from flashverify_kernels.signature import Source, source_of


def latent_source(
    *,
    dv: int,
    rope: int,
    dtype: torch.dtype,
    rows: int = 128,
    mask: str = "none",
    page_size: int = 0,
    split: bool = True,
    aligned: bool = True,
    precision: Precision = "ieee",
    capability: tuple[int, int] | None = None,
) -> Source:
    """What a launch would compile.

    Args:
        dv: latent channels.
        rope: channels of the rotary part.
        dtype: of the inputs.
        rows: query heads per kv head times queries, of which only the class is used.
        mask: kinds of mask joined by "+", see `config.mask_flags`.
        page_size: keys per page, 0 without pages.
        split: whether there is more than one split, whose partial outputs are fp32.
        aligned: whether strides and pointers are aligned.
        precision: of the dot products of fp32 inputs.
        capability: compute capability of the GPU whose tiles are taken, as of `latent_config`.
    """
    constants = launch_constants(
        latent_config(dv=dv, rope=rope, dtype=dtype, rows=rows, capability=capability),
        dv=dv,
        rope=rope,
        page_size=page_size,
        aligned=aligned,
        mask=mask_flags(mask),
        precision=precision,
    )
    absent = {"mask.bits.ptr", "mask.blocks.ptr", "mask.prefix_lengths"} | ({"pages.ptr"} if not page_size else set())
    elements = {"o_view.ptr": torch.float32 if split else dtype}
    parts = split_constants(latent_kernel, constants)
    return source_of(latent_kernel, *parts, lambda path: path not in absent, dtype, elements)
