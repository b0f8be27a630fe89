"""Compile the kernels without a GPU and without launching them: what the compiler says about each."""

import inspect
import re
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from flashverify_kernels.arguments import compile_constants
from flashverify_kernels.config import LaunchConfig, Pairs, launch_config, mask_flags
from flashverify_kernels.device.delta import delta_kernel
from flashverify_kernels.device.dkdv import dkdv_kernel
from flashverify_kernels.device.dq import dq_kernel
from flashverify_kernels.device.forward import forward_kernel
from flashverify_kernels.device.mask import BITS, SPARSE
from flashverify_kernels.launch import DELTA_ROWS
from flashverify_kernels.options import Precision
from flashverify_kernels.runtime import INTERPRETED

KernelName = Literal["forward", "delta", "dq", "dkdv"]

KERNELS: dict[str, Any] = {
    "forward": forward_kernel,
    "delta": delta_kernel,
    "dq": dq_kernel,
    "dkdv": dkdv_kernel,
}

_ELEMENT = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}
_FP32_POINTERS = ("lse2_ptr", "delta_ptr", "dlse_ptr", "slopes_ptr", "sink_ptr", "dbias_ptr")
_INT32_POINTERS = ("cu_q_ptr", "cu_k_ptr", "q_lengths_ptr", "k_lengths_ptr", "bits_ptr", "blocks_ptr")

_SCALARS = {"int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64"}

TERMS = {
    "softcap": ("cap_ratio", "cap_log2"),
    "alibi": ("slopes_ptr",),
    "bias": ("bias_ptr",),
    "dbias": ("bias_ptr", "dbias_ptr"),
    "sink": ("sink_ptr",),
    "dropout": ("keep_share", "keep_scale"),
}
"""What can be done to logits and weights, and the parameters that are None without it."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the compiler is given.

    Attributes:
        fn: the kernel.
        signature: type by parameter, `constexpr` for a constant.
        constants: value by constant parameter.
        options: launch options.
    """

    fn: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, Any]


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
            pairs: Pairs = "bias" if {"bias", "dbias"} & set(terms) else "terms" if set(terms) - {"sink"} else "plain"
            config = launch_config(kernel, d=d, dv=dv, dtype=dtype, mask=mask, sq=1 << 12, pairs=pairs)
    flags = mask_flags(mask)
    constants = compile_constants(kernel, config, d=d, dv=dv, aligned=aligned, mask=flags, precision=precision)
    given = {
        "cu_q_ptr": packed,
        "cu_k_ptr": packed,
        "q_lengths_ptr": query_lengths,
        "k_lengths_ptr": key_lengths,
        "bits_ptr": bool(flags & BITS.value),
        "blocks_ptr": bool(flags & SPARSE.value),
        "dlse_ptr": dlse,
    }
    for term, names in TERMS.items():
        for name in names:
            given[name] = given.get(name, False) or term in terms
    signature: dict[str, str] = {}
    values: dict[str, Any] = {}
    fn = KERNELS[kernel]
    for name, parameter in inspect.signature(fn.fn).parameters.items():
        if parameter.annotation is tl.constexpr:
            signature[name], values[name] = "constexpr", constants[name]
        elif not given.get(name, True):
            signature[name], values[name] = "constexpr", None
        else:
            signature[name] = _type(name, parameter.annotation, dtype)
    options = {
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "enable_fp_fusion": kernel != "forward",  # see `online_step`
    }
    return Source(fn=fn, signature=signature, constants=values, options=options)


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
    if INTERPRETED:
        raise RuntimeError("kernels cannot be compiled in a process that interprets them: unset TRITON_INTERPRET")
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
    built = triton.compile(
        triton.compiler.ASTSource(source.fn, source.signature, source.constants),
        target=GPUTarget("cuda", capability, 32),
        options=source.options,
    )
    registers, stack = _resources(built.asm["cubin"])
    return Compiled(
        ttir=built.asm["ttir"], ptx=built.asm["ptx"], registers=registers, stack=stack, shared=built.metadata.shared
    )


def _type(name: str, annotation: Any, dtype: torch.dtype) -> str:
    if name in _FP32_POINTERS:
        return "*fp32"
    if name in _INT32_POINTERS:
        return "*i32"
    if name.endswith("_ptr"):
        return _ELEMENT[dtype]
    return _SCALARS[annotation.name] if isinstance(annotation, tl.dtype) else "fp32"


def _resources(cubin: bytes) -> tuple[int, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        done = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout)
    if found is None:
        raise RuntimeError(f"cuobjdump: no resource usage in its output: {done.stdout!r}")
    return int(found[1]), int(found[2])
