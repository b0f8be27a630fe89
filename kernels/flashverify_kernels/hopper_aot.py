"""Compile the kernels for Hopper GPUs without a GPU and without launching them."""

from typing import Any, Literal

import torch
import triton
from triton.backends.compiler import GPUTarget

from flashverify_kernels.aot import Compiled, resources
from flashverify_kernels.hopper import dkdv_form
from flashverify_kernels.runtime import INTERPRETED

HopperKernel = Literal["forward", "narrow_forward", "dq", "dkdv"]

_TILES = {
    "forward": {"q_tiles": 64, "k_tiles": 128, "v_tiles": 128, "o_tiles": 64},
    "dq": {"q_tiles": 64, "k_tiles": 64, "v_tiles": 64, "do_tiles": 64, "dq_tiles": 64},
    "dkdv": {"q_tiles": 64, "k_tiles": 64, "v_tiles": 64, "do_tiles": 64, "dk_tiles": 64, "dv_tiles": 64},
}
_WIDE = {"k_tiles": 64, "v_tiles": 64}
"""Of the forward beyond 128 channels."""
_SIZES = dict.fromkeys(("heads", "group", "sq", "sk", "low", "high"), "i32")
_BLOCKS = {"live_ptr": "*i32", "live_batch": "i64", "live_head": "i64", "block_rows": "i32", "block_keys": "i32"}
_PACKED = {"cu_q_ptr": "*i32", "cu_k_ptr": "*i32", **dict.fromkeys(("packed", "halvings", "rows", "align_end"), "i32")}
_ELEMENTS = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def compile_hopper(
    kernel: HopperKernel,
    *,
    d: int,
    dtype: torch.dtype,
    causal: bool,
    left: bool = False,
    blocks: bool = False,
    packed: bool = False,
    stages: int = 2,
) -> Compiled:
    """Compile one kernel for sm_90.

    Args:
        kernel: which kernel.
        d: head dimension of q, k and v.
        dtype: of the inputs.
        causal: whether the mask has an upper edge.
        left: whether it has a lower edge.
        blocks: whether it has a pattern of live blocks.
        packed: whether sequences are packed (not the narrow forward).
        stages: slots of the rings of tiles of a forward, and of values of dQ.

    Raises:
        RuntimeError: this process interprets its kernels.
    """
    if INTERPRETED:
        raise RuntimeError("kernels cannot be compiled in a process that interprets them: unset TRITON_INTERPRET")
    from triton.experimental.gluon._runtime import GluonASTSource
    from triton.experimental.gluon.language import NVMMASharedLayout

    from flashverify_kernels.device.hopper.dkdv import hopper_dkdv_kernel
    from flashverify_kernels.device.hopper.dq import hopper_dq_kernel
    from flashverify_kernels.device.hopper.forward import hopper_forward_kernel
    from flashverify_kernels.device.hopper.narrow import hopper_narrow_forward_kernel

    backward = kernel in ("dq", "dkdv")
    form, registers = dkdv_form(d) if kernel == "dkdv" else ({}, {"maxnreg": 168})
    layout = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=5 if packed else 4)
    tiles = _TILES[kernel if backward else "forward"] | (_WIDE if d > 128 else {})
    signature: dict[str, Any] = {
        name: f"tensordesc<{_ELEMENTS[dtype]}{[*[1] * (3 if packed else 2), rows, d]},{layout!r}>"
        for name, rows in tiles.items()
    }
    signature |= {"lse2_ptr": "*fp32", "delta_ptr": "*fp32", "scale": "fp32"} if backward else {"lse2_ptr": "*fp32"}
    signature |= {
        "scale_log2": "fp32",
        **({"batch": "i32"} if kernel in ("forward", "dq") else {}),
        **_SIZES,
        **_BLOCKS,
    }
    signature |= {} if kernel == "narrow_forward" else _PACKED
    constants: dict[str, Any] = {
        "UPPER": causal,
        **({"PAIRED": causal and not left and not packed} if kernel in ("forward", "dq") else {}),
        **({"K_STAGES": stages + 1, "V_STAGES": stages} if kernel == "dq" else form or {"STAGES": stages}),
    }
    if not left:
        constants["low"] = None
    if not blocks:
        constants |= dict.fromkeys(_BLOCKS)
    if not packed and kernel != "narrow_forward":
        constants |= dict.fromkeys(_PACKED)
    functions = {
        "forward": hopper_forward_kernel,
        "narrow_forward": hopper_narrow_forward_kernel,
        "dq": hopper_dq_kernel,
        "dkdv": hopper_dkdv_kernel,
    }
    options: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": backward}
    built = triton.compile(
        GluonASTSource(functions[kernel], signature | dict.fromkeys(constants, "constexpr"), constants),
        target=GPUTarget("cuda", 90, 32),
        options=options | registers,
    )
    used, stack = resources(built.asm["cubin"])
    return Compiled(
        ttir=built.asm["ttgir"], ptx=built.asm["ptx"], registers=used, stack=stack, shared=built.metadata.shared
    )
