"""Compile the kernels without a GPU and without launching them: what the compiler says about each."""

import re
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
from triton.backends.compiler import GPUTarget

from flashverify_kernels.arguments import compile_constants
from flashverify_kernels.config import LaunchConfig, Pairs, launch_config
from flashverify_kernels.device.delta import delta_kernel
from flashverify_kernels.device.dkdv import dkdv_kernel
from flashverify_kernels.device.dq import dq_kernel
from flashverify_kernels.device.forward import forward_kernel
from flashverify_kernels.device.mask import BITS, PREFIX, SPARSE
from flashverify_kernels.launch import DELTA_ROWS
from flashverify_kernels.mask_kinds import mask_flags
from flashverify_kernels.options import Precision
from flashverify_kernels.runtime import INTERPRETED
from flashverify_kernels.signature import Source, source_of
from flashverify_kernels.tiles import tile_shapes

KernelName = Literal["forward", "delta", "dq", "dkdv"]

KERNELS: dict[str, Any] = {
    "forward": forward_kernel,
    "delta": delta_kernel,
    "dq": dq_kernel,
    "dkdv": dkdv_kernel,
}

TERMS = {
    "softcap": ("terms.cap_ratio", "terms.cap_log2"),
    "alibi": ("terms.slopes",),
    "bias": ("terms.bias.ptr",),
    "dbias": ("terms.bias.ptr", "ds_ptr"),
    "sink": ("terms.sink",),
    "relative_bias": ("terms.relative.ptr", "terms.relative.width"),
    "drelative_bias": ("terms.relative.ptr", "terms.relative.width", "ds_ptr"),
    "dropout": ("dropout.keep_share", "dropout.keep_scale"),
}
"""What can be done to logits and weights, and the arguments that are None without it."""

VARIANTS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"mask": "causal", "key_lengths": True},
    "window": {"mask": "window", "packed": True},
    "tree": {"mask": "tree", "key_lengths": True},
    "causal+bitmap": {"mask": "causal+bitmap", "query_lengths": True},
    "blocks": {"mask": "blocks"},
    "prefix": {"mask": "prefix+left", "packed": True},
    "softcap+alibi": {"terms": ("softcap", "alibi")},
    "causal+bias+sink": {"mask": "causal", "terms": ("bias", "dbias", "sink")},
    "causal+relative": {"mask": "causal", "packed": True, "terms": ("relative_bias", "drelative_bias")},
    "causal+dropout": {"mask": "causal", "packed": True, "terms": ("dropout",)},
}
"""Arguments of `kernel_source`: masks, tables and terms, so that each of them occurs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What came out of the compiler.

    Attributes:
        ttir: Triton's intermediate code.
        ptx: assembly.
        registers: registers per thread.
        stack: local memory per thread, bytes: what spilled.
        shared: shared memory per program, bytes.
    """

    ttir: str
    ptx: str
    registers: int
    stack: int
    shared: int


def kernel_source(
    kernel: KernelName,
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    mask: str = "none",
    query_lengths: bool = False,
    key_lengths: bool = False,
    packed: bool = False,
    dlse: bool = False,
    terms: Collection[str] = (),
    aligned: bool = True,
    precision: Precision = "ieee",
    config: LaunchConfig | None = None,
) -> Source:
    """What a launch would compile; arguments as in `compile_kernel`."""
    if config is None:
        if kernel == "delta":
            config = LaunchConfig(block_m=DELTA_ROWS, block_n=DELTA_ROWS)
        else:
            loaded = {"bias", "dbias", "relative_bias", "drelative_bias"}
            pairs: Pairs = "bias" if loaded & set(terms) else "terms" if set(terms) - {"sink"} else "plain"
            whole = not (query_lengths or key_lengths or packed)
            config = launch_config(kernel, d=d, dv=dv, dtype=dtype, mask=mask, sq=1 << 12, pairs=pairs, whole=whole)
    flags = mask_flags(mask)
    constants = compile_constants(kernel, config, d=d, dv=dv, aligned=aligned, mask=flags, precision=precision)
    given = {
        "sequences.cu_q": packed,
        "sequences.cu_k": packed and kernel != "delta",
        "sequences.q_lengths": query_lengths,
        "sequences.k_lengths": key_lengths and kernel != "delta",
        "mask.prefix_lengths": bool(flags & PREFIX.value),
        "mask.bits.ptr": bool(flags & BITS.value),
        "mask.blocks.ptr": bool(flags & SPARSE.value),
        "stats.delta": kernel != "forward",
        "stats.dlse": dlse and kernel == "delta",
        **dict.fromkeys(("k_tiles", "v_tiles", "q_tiles", "do_tiles"), False),
    }
    for term, paths in TERMS.items():
        for path in paths:
            given[path] = given.get(path, False) or (term in terms and (term != "sink" or kernel == "forward"))
    options = {
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "enable_fp_fusion": kernel != "forward",  # see `online_step`
    }
    whole = aligned and not (query_lengths or key_lengths or packed)
    tiles = tile_shapes(kernel, config, d, dv, dtype, constants["BLOCK_DV"]) if whole and kernel != "delta" else {}
    return source_of(KERNELS[kernel], constants, options, lambda path: given.get(path, True), dtype, tiles=tiles)


def compile_kernel(
    kernel: KernelName,
    capability: int,
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    mask: str = "none",
    query_lengths: bool = False,
    key_lengths: bool = False,
    packed: bool = False,
    dlse: bool = False,
    terms: Collection[str] = (),
    aligned: bool = True,
    precision: Precision = "ieee",
    config: LaunchConfig | None = None,
) -> Compiled:
    """Compile one kernel for a compute capability such as 80 or 90.

    Args:
        kernel: which kernel.
        capability: compute capability times 10.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        mask: kinds of mask joined by "+", see `config.mask_flags`.
        query_lengths: whether query lengths are given.
        key_lengths: whether key lengths are given.
        packed: whether sequences are packed.
        dlse: whether a gradient of LSE is given (delta only).
        terms: what is done to logits and weights, out of `TERMS`.
        aligned: whether strides and pointers are aligned.
        precision: of the dot products of fp32 inputs.
        config: launch configuration; that of a long sequence by default.

    Raises:
        RuntimeError: this process interprets its kernels.
    """
    source = kernel_source(
        kernel,
        d=d,
        dv=dv,
        dtype=dtype,
        mask=mask,
        query_lengths=query_lengths,
        key_lengths=key_lengths,
        packed=packed,
        dlse=dlse,
        terms=terms,
        aligned=aligned,
        precision=precision,
        config=config,
    )
    return compile_source(source, capability)


def compile_source(source: Source, capability: int) -> Compiled:
    """Compile what a launch would for a compute capability such as 80 or 90.

    Raises:
        RuntimeError: this process interprets its kernels.
    """
    if INTERPRETED:
        raise RuntimeError("kernels cannot be compiled in a process that interprets them: unset TRITON_INTERPRET")
    built = triton.compile(
        triton.compiler.ASTSource(source.fn, source.signature, source.paths()),
        target=GPUTarget("cuda", capability, 32),
        options=source.options,
    )
    registers, stack = resources(built.asm["cubin"])
    return Compiled(
        ttir=built.asm["ttir"], ptx=built.asm["ptx"], registers=registers, stack=stack, shared=built.metadata.shared
    )


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of local memory of each thread of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        done = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout)
    if found is None:
        raise RuntimeError(f"cuobjdump: no resource usage in its output: {done.stdout!r}")
    return int(found[1]), int(found[2])
