"""What launches of the kernels whose keys are chosen by index would compile, for a look at them without a GPU."""

from typing import Any

import torch

from flashverify_kernels.decode_aot import split_constants
from flashverify_kernels.device.selected_backward import selected_dkdv_kernel, selected_dq_kernel
from flashverify_kernels.device.selected_forward import selected_forward_kernel
from flashverify_kernels.options import Precision
from flashverify_kernels.selected_launch import selected_config, selected_constants
from flashverify_kernels.signature import Source, source_of

KERNELS: dict[str, Any] = {
    "selected_forward": selected_forward_kernel,
    "selected_dq": selected_dq_kernel,
    "selected_dkdv": selected_dkdv_kernel,
}


def selected_source(
    kernel: str,
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    causal: bool = False,
    key_lengths: bool = True,
    dlse: bool = False,
    aligned: bool = True,
    precision: Precision = "ieee",
) -> Source:
    """What a launch would compile.

    Args:
        kernel: one of `KERNELS`.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        causal: whether there is a causal mask.
        key_lengths: whether key lengths are given.
        dlse: whether a gradient arrives through the LSE.
        aligned: whether strides and pointers are aligned.
        precision: of the dot products of fp32 inputs.
    """
    fn = KERNELS[kernel]
    config = selected_config(d=d, dv=dv, dtype=dtype)
    constants = selected_constants(config, d=d, dv=dv, aligned=aligned, causal=causal, precision=precision)
    walks = kernel != "selected_dkdv"
    given = {
        "k_lengths_ptr": key_lengths,
        "dlse_ptr": dlse,
        "selected.lists": walks,
        "selected.counts": walks,
        "selected.named": not walks,
    }
    return source_of(fn, *split_constants(fn, constants), lambda path: given.get(path, True), dtype)
