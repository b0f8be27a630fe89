"""From a checked problem and its tensors to the keyword arguments of the kernels."""

from typing import Any

import torch

from flashverify_kernels.config import Kind, LaunchConfig, padded_dim
from flashverify_kernels.options import Options, Precision
from flashverify_kernels.runtime import INTERPRETED
from flashverify_kernels.terms import LOG2_E
from flashverify_kernels.validation import Problem, axes

_INT32 = 2**31
_LARGEST_TILE = 256
_NARROWEST = 64


def in_order(options: Options, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors with their axes in the order (batch, head, sequence, channel)."""
    return {name: x.permute(axes(options.layout)) for name, x in tensors.items()}


def pointers(views: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The pointer arguments."""
    return {f"{name}_ptr": x for name, x in views.items()}


def _head_strides(x: torch.Tensor) -> tuple[int, ...]:
    """Strides of batch, head and sequence, elements; an axis of size 1 has none that matters."""
    return tuple(0 if size == 1 else stride for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True))


def strides(views: dict[str, torch.Tensor]) -> dict[str, int]:
    """The stride arguments, elements."""
    return {
        f"stride_{name}{axis}": stride
        for name, x in views.items()
        for axis, stride in zip("bhs", _head_strides(x), strict=True)
    }


def row_strides(problem: Problem) -> dict[str, int]:
    """The strides of the statistics of the rows, `[B, Hq, rows]` contiguous, elements."""
    return {
        "stride_rowb": 0 if problem.batch == 1 else problem.heads * problem.rows,
        "stride_rowh": problem.rows,
    }


def sequence_arguments(options: Options) -> dict[str, torch.Tensor | None]:
    """Where the rows of a sequence lie and how many count; an absent table is None and so part of the compile key."""
    packed = options.packed
    return {
        "cu_q_ptr": None if packed is None else packed.cu_q,
        "cu_k_ptr": None if packed is None else packed.cu_k,
        "q_lengths_ptr": options.query_lengths,
        "k_lengths_ptr": options.key_lengths,
    }


def mask_arguments(problem: Problem, kind: Kind) -> dict[str, Any]:
    """The tables and numbers of the mask."""
    mask, blocks = problem.mask, problem.mask.blocks
    tables = None
    if blocks is not None:
        tables = blocks.along_queries if kind == "dkdv" else blocks.along_keys
    bits_strides = (0, 0, 0) if mask.words is None else _head_strides(mask.words)
    block_strides = (0, 0) if tables is None else _head_strides(tables)[:2]
    rows, keys = mask.block_size or (0, 0)
    return {
        "bits_ptr": mask.words,
        "blocks_ptr": tables,
        "left": mask.left,
        "right": mask.right,
        "align_end": int(mask.align_end),
        "tree": int(mask.tree),
        "block_rows": rows,
        "block_keys": keys,
        **{f"stride_bits{axis}": stride for axis, stride in zip("bhs", bits_strides, strict=True)},
        **{f"stride_blocks{axis}": stride for axis, stride in zip("bh", block_strides, strict=True)},
    }


def term_arguments(problem: Problem, kind: Kind) -> dict[str, Any]:
    """What is done to logits and weights; what is absent is None and so part of the compile key."""
    terms, cap, drop = problem.terms, problem.terms.softcap, problem.terms.dropout
    bias_strides = (0, 0, 0) if terms.bias is None else _head_strides(terms.bias)
    own: dict[str, Any] = {"sink_ptr": terms.sink}
    if kind != "forward":
        own = {"keep_scale": None if drop is None else 1 / (1 - drop.p)}
    return {
        "scale_log2": problem.scale * LOG2_E,
        "cap_ratio": None if cap is None else problem.scale / cap,
        "cap_log2": None if cap is None else cap * LOG2_E,
        "keep_share": None if drop is None else 1 - drop.p,
        "slopes_ptr": terms.slopes,
        "bias_ptr": terms.bias,
        "align_slopes": int(terms.align_slopes),
        "seed": 0 if drop is None else drop.seed,
        "offset": 0 if drop is None else drop.offset,
        "threshold": 0 if drop is None else drop.threshold,
        **{f"stride_bias{axis}": stride for axis, stride in zip("bhs", bias_strides, strict=True)},
        **own,
    }


def size_arguments(problem: Problem) -> dict[str, int]:
    """The runtime sizes that all kernels of the softmax share."""
    return {
        "group": problem.heads // max(problem.kv_heads, 1),
        "sq": problem.sq,
        "sk": problem.sk,
        "d8": problem.d // 8,
        "dv8": problem.dv // 8,
    }


def constants(problem: Problem, kind: Kind, views: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The constexpr arguments and launch options of one launch."""
    config = problem.configs[kind]
    return {
        **compile_constants(
            kind,
            config,
            d=problem.d,
            dv=problem.dv,
            aligned=_aligned(views),
            mask=problem.mask.flags,
            precision=problem.precision,
            interpreted=INTERPRETED,
        ),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }


def _aligned(views: dict[str, torch.Tensor]) -> bool:
    """Whether rows start on multiples of 8 elements and of 16 bytes, and every offset within a head fits an int32."""
    return all(
        x.data_ptr() % 16 == 0
        and all(stride % 8 == 0 for stride in _head_strides(x))
        and (x.shape[2] + _LARGEST_TILE) * x.stride(2) < _INT32
        for x in views.values()
    )


def compile_constants(
    kind: str,
    config: LaunchConfig,
    *,
    d: int,
    dv: int,
    aligned: bool,
    mask: int,
    precision: Precision,
    interpreted: bool = False,
) -> dict[str, Any]:
    """The constexpr arguments. With the dtypes, the presence of optional pointers, warps and stages: the compile key.

    The forward's tile of V is at least `_NARROWEST` wide where rows are not aligned: the assemblers that come with Triton 3.6 and 3.7 lose
    the shared memory address of a narrower one on sm_90, and the product reads outside (`flashverify compile`: `undefined-register`).
    """
    block_d, block_dv = padded_dim(d), padded_dim(dv)
    if kind == "forward" and not aligned and not interpreted:
        block_dv = max(block_dv, _NARROWEST)
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_D": block_d,
        "BLOCK_DV": block_dv,
        "EVEN_D": d == block_d,
        "EVEN_DV": dv == block_dv,
        "ALIGNED": aligned,
        "MASK": mask,
        "PRECISION": precision,
    }
