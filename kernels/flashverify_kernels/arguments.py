"""From a checked problem and its tensors to the keyword arguments of the kernels."""

from typing import Any

import torch

from flashverify_kernels.config import Kind, LaunchConfig, MaskKind, padded_dim
from flashverify_kernels.device.mask import CAUSAL, NONE, TREE
from flashverify_kernels.validation import Options, Precision, Problem, axes

_MASKS = {"none": NONE.value, "causal": CAUSAL.value, "tree": TREE.value}


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


def mask_arguments(options: Options) -> dict[str, torch.Tensor | None]:
    """The tables of the mask; an absent one is None and so part of the compile key."""
    return {
        "lengths_ptr": options.key_lengths,
        "bits_ptr": None if options.tree is None else options.tree.bits,
    }


def size_arguments(problem: Problem) -> dict[str, int]:
    """The runtime sizes that all kernels of the softmax share."""
    return {
        "group": problem.heads // max(problem.kv_heads, 1),
        "sq": problem.sq,
        "sk": problem.sk,
        "d8": problem.d // 8,
        "dv8": problem.dv // 8,
        "align_end": int(problem.align_end),
    }


def constants(problem: Problem, kind: Kind, views: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The constexpr arguments and launch options of one launch."""
    aligned = all(
        x.data_ptr() % 16 == 0 and all(stride % 8 == 0 for stride in _head_strides(x)) for x in views.values()
    )
    config = problem.configs[kind]
    return {
        **compile_constants(
            config, d=problem.d, dv=problem.dv, aligned=aligned, mask=problem.mask, precision=problem.precision
        ),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }


def compile_constants(
    config: LaunchConfig, *, d: int, dv: int, aligned: bool, mask: MaskKind, precision: Precision
) -> dict[str, Any]:
    """The constexpr arguments. With the dtypes, the presence of optional pointers, warps and stages: the compile key."""
    block_d, block_dv = padded_dim(d), padded_dim(dv)
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_D": block_d,
        "BLOCK_DV": block_dv,
        "EVEN_D": d == block_d,
        "EVEN_DV": dv == block_dv,
        "ALIGNED": aligned,
        "MASK": _MASKS[mask],
        "PRECISION": precision,
    }
