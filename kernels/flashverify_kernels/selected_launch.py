"""Launches of the kernels whose keys are chosen by index: forward and backward of checked tensors."""

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from flashverify_kernels.config import Kind, LaunchConfig, padded_dim
from flashverify_kernels.device.selected_backward import selected_dkdv_kernel, selected_dq_kernel
from flashverify_kernels.device.selected_forward import selected_forward_kernel
from flashverify_kernels.device.selection import SelectedSizes
from flashverify_kernels.merge import aligned
from flashverify_kernels.options import Precision
from flashverify_kernels.selection import Prepared, Selection, lists_of, namers_of
from flashverify_kernels.views import view

_LOG2_E = math.log2(math.e)
_MIDDLE = 128

KERNELS: dict[Kind, Any] = {
    "forward": selected_forward_kernel,
    "dq": selected_dq_kernel,
    "dkdv": selected_dkdv_kernel,
}
"""The kernels, by what they compute."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SelectedCall:
    """A checked call; the axes of its tensors are batch, head, sequence, channel.

    Attributes:
        found: the lists.
        scale: of the logits.
        causal: None, "top-left" or "bottom-right".
        key_lengths: `[B]` int32, or None.
        precision: of the dot products of fp32 inputs.
    """

    found: Prepared
    scale: float
    causal: str | None
    key_lengths: torch.Tensor | None
    precision: Precision


def selected_config(kind: Kind, *, d: int, dv: int, dtype: torch.dtype, packed: int, keys: int) -> LaunchConfig:
    """Choose the launch configuration of a kernel.

    Args:
        kind: which kernel.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        packed: rows of a list: queries that share it times the heads of a group.
        keys: keys of a block.
    """
    width = max(padded_dim(d), padded_dim(dv))
    if dtype == torch.float32:
        config = LaunchConfig(block_m=16, block_n=32, num_warps=4, num_stages=1)
    elif width > _MIDDLE:
        config = LaunchConfig(block_m=32 if kind == "dkdv" else 64, block_n=32, num_warps=8, num_stages=1)
    elif kind == "dkdv":  # both accumulators stay in registers
        config = LaunchConfig(block_m=32 if width == _MIDDLE else 64, block_n=64, num_warps=4, num_stages=2)
    else:
        config = LaunchConfig(block_m=64, block_n=64, num_warps=4, num_stages=3 if kind == "forward" else 2)
    config = replace(config, block_m=min(config.block_m, padded_dim(packed)))
    return replace(config, block_n=min(config.block_n, padded_dim(keys))) if kind == "dkdv" else config


def selected_constants(
    config: LaunchConfig, *, d: int, dv: int, aligned: bool, causal: bool, whole: bool, precision: Precision
) -> dict[str, Any]:
    """The constexpr arguments and the options of a launch.

    Args:
        config: tiles, warps and stages.
        d: head dimension of q and k.
        dv: head dimension of v.
        aligned: whether every row starts on 16 bytes.
        causal: whether there is a causal mask.
        whole: whether the tiles that the loop walks divide the blocks of keys, or the packed rows of a list.
        precision: of the dot products of fp32 inputs.
    """
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_D": padded_dim(d),
        "BLOCK_DV": padded_dim(dv),
        "EVEN_D": d == padded_dim(d),
        "EVEN_DV": dv == padded_dim(dv),
        "ALIGNED": aligned,
        "CAUSAL": causal,
        "PRECISION": precision,
        "WHOLE": whole,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "enable_fp_fusion": False,  # see `online_step`
    }


def launch_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse2: torch.Tensor, call: SelectedCall
) -> None:
    """Write `o` and the base-2 LSE, `[B, Hq, Sq]` fp32 contiguous."""
    tensors = {"q": q, "k": k, "v": v, "o": o}
    rest = {"lse_ptr": lse2, "selected": lists_of(call.found)}
    _launch("forward", tensors, call, rest)


def launch_backward(
    tensors: dict[str, torch.Tensor], lse2: torch.Tensor, dlse: torch.Tensor | None, call: SelectedCall
) -> None:
    """Write dq, dk and dv.

    Args:
        tensors: q, k, v, o, do, dq, dk and dv.
        lse2: `[B, Hq, Sq]` fp32 contiguous, base 2.
        dlse: likewise, the gradient of the natural LSE, or None.
        call: what is computed.
    """
    delta = torch.empty_like(lse2)
    shared: dict[str, Any] = {"lse_ptr": lse2, "delta_ptr": delta, "scale": call.scale}
    own = {"dlse_ptr": dlse, "selected": lists_of(call.found)}
    rows = {name: tensors[name] for name in ("q", "k", "v", "o", "do", "dq")}
    _launch("dq", rows, call, shared | own)
    keys = {name: tensors[name] for name in ("q", "k", "v", "do", "dk", "dv")}
    _launch("dkdv", keys, call, shared | {"selected": namers_of(call.found, tensors["k"].shape[2])})


def _programs(kind: Kind, tensors: dict[str, torch.Tensor], config: LaunchConfig, selection: Selection) -> int:
    """One for each tile of packed rows of each list, or for each tile of keys of each block."""
    q, k = tensors["q"], tensors["k"]
    heads = k.shape[0] * k.shape[1]
    if kind == "dkdv":
        return heads * -(-k.shape[2] // selection.keys) * -(-selection.keys // config.block_n)
    packed = q.shape[1] // max(k.shape[1], 1) * selection.rows
    return heads * -(-q.shape[2] // selection.rows) * -(-packed // config.block_m)


def _launch(kind: Kind, tensors: dict[str, torch.Tensor], call: SelectedCall, arguments: dict[str, Any]) -> None:
    q, k, v, selection = tensors["q"], tensors["k"], tensors["v"], call.found.selection
    d, dv, group = q.shape[3], v.shape[3], q.shape[1] // max(k.shape[1], 1)
    packed = group * selection.rows
    config = selected_config(kind, d=d, dv=dv, dtype=q.dtype, packed=packed, keys=selection.keys)
    programs = _programs(kind, tensors, config, selection)
    if not programs:
        return
    with torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext():
        KERNELS[kind][(programs,)](
            **{f"{name}_view": view(x) for name, x in tensors.items()},
            **arguments,
            k_lengths_ptr=call.key_lengths,
            scale_log2=call.scale * _LOG2_E,
            sizes=SelectedSizes(
                heads=q.shape[1],
                kv_heads=k.shape[1],
                group=group,
                sq=q.shape[2],
                sk=k.shape[2],
                d8=d // 8,
                dv8=dv // 8,
                align_end=int(call.causal == "bottom-right"),
            ),
            **selected_constants(
                config,
                d=d,
                dv=dv,
                aligned=aligned(*tensors.values()),
                causal=call.causal is not None,
                whole=(packed % config.block_m if kind == "dkdv" else selection.keys % config.block_n) == 0,
                precision=call.precision,
            ),
        )
