"""What launches of the decoding and merging kernels would compile, for a look at them without a GPU."""

import inspect
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from flashverify_kernels.aot import Compiled, Source, _resources
from flashverify_kernels.config import LaunchConfig, mask_flags
from flashverify_kernels.decode_config import decode_config, launch_constants
from flashverify_kernels.device.decode import decode_kernel
from flashverify_kernels.device.mask import BITS
from flashverify_kernels.device.merge import merge_backward_kernel, merge_kernel
from flashverify_kernels.merge import COMPILED_TILE, merge_constants
from flashverify_kernels.options import Precision
from flashverify_kernels.runtime import INTERPRETED

KERNELS: dict[str, Any] = {"decode": decode_kernel, "merge": merge_kernel, "merge_backward": merge_backward_kernel}

_ELEMENT = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}
_LSE_POINTERS = ("lse_ptr", "merged_lse_ptr", "dlse_ptr", "dpart_lse_ptr")
_TABLES = ("k_lengths_ptr", "bits_ptr", "table_ptr")


def decode_source(
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    rows: int = 8,
    mask: str = "none",
    key_lengths: bool = True,
    page_size: int = 0,
    split: bool = True,
    aligned: bool = True,
    precision: Precision = "ieee",
    config: LaunchConfig | None = None,
) -> Source:
    """What a launch of the decoding kernel would compile.

    Args:
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        rows: query heads per kv head times queries, of which only the class is used.
        mask: kinds of mask joined by "+", see `config.mask_flags`.
        key_lengths: whether key lengths are given.
        page_size: keys per page, 0 without pages.
        split: whether there is more than one split, whose partial outputs are fp32.
        aligned: whether strides and pointers are aligned.
        precision: of the dot products of fp32 inputs.
        config: launch configuration, by default the one of `rows`.
    """
    config = config or decode_config(d=d, dv=dv, dtype=dtype, rows=rows)
    flags = mask_flags(mask)
    constants = launch_constants(
        config, d=d, dv=dv, page_size=page_size, aligned=aligned, mask=flags, precision=precision
    )
    absent = {
        name for name, given in zip(_TABLES, (key_lengths, flags & BITS.value, page_size), strict=True) if not given
    }
    return _source(decode_kernel, constants, absent, {"o_ptr": torch.float32 if split else dtype}, dtype)


def merge_source(
    *, parts: int, dv: int, dtype: torch.dtype, backward: bool = False, decoded: bool = False, aligned: bool = True
) -> Source:
    """What a launch of a merging kernel would compile.

    Args:
        parts: number of partials.
        dv: channels.
        dtype: of the partials, or where `decoded` of what they are merged into.
        backward: the gradients instead of the merge.
        decoded: the second phase of a decoding: partials in fp32.
        aligned: whether strides and pointers are aligned.
    """
    constants = merge_constants(parts, dv, aligned=aligned, elements=COMPILED_TILE)
    kernel = merge_backward_kernel if backward else merge_kernel
    return _source(kernel, constants, set(), {"o_ptr": torch.float32 if decoded else dtype}, dtype)


def compile_source(source: Source, capability: int) -> Compiled:
    """Compile what a launch would for a compute capability such as 80 or 90.

    Raises:
        RuntimeError: this process interprets its kernels.
    """
    if INTERPRETED:
        raise RuntimeError("kernels cannot be compiled in a process that interprets them: unset TRITON_INTERPRET")
    built = triton.compile(
        triton.compiler.ASTSource(source.fn, source.signature, source.constants),
        target=GPUTarget("cuda", capability, 32),
        options=source.options,
    )
    registers, stack = _resources(built.asm["cubin"])
    return Compiled(
        ttir=built.asm["ttir"], ptx=built.asm["ptx"], registers=registers, stack=stack, shared=built.metadata.shared
    )


def _source(
    fn: Any, constants: dict[str, Any], absent: set[str], elements: dict[str, torch.dtype], dtype: torch.dtype
) -> Source:
    options = dict(constants)
    signature: dict[str, str] = {}
    values: dict[str, Any] = {}
    for name, parameter in inspect.signature(fn.fn).parameters.items():
        if parameter.annotation is tl.constexpr:
            signature[name], values[name] = "constexpr", options.pop(name)
        elif name in absent:
            signature[name], values[name] = "constexpr", None
        elif name in _TABLES:
            signature[name] = "*i32"
        elif name in _LSE_POINTERS:
            signature[name] = "*fp32"
        elif name.endswith("_ptr"):
            signature[name] = _ELEMENT[elements.get(name, dtype)]
        elif isinstance(parameter.annotation, tl.dtype):
            signature[name] = {"int32": "i32", "int64": "i64"}[parameter.annotation.name]
        else:
            signature[name] = "fp32"
    return Source(fn=fn, signature=signature, constants=values, options=options)
