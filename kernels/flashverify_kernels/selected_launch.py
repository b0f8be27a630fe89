"""Launches of the kernels whose keys are chosen by index: forward and backward of checked tensors."""

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import torch

from flashverify_kernels.config import LaunchConfig, padded_dim
from flashverify_kernels.device.selected_backward import selected_dkdv_kernel, selected_dq_kernel
from flashverify_kernels.device.selected_forward import selected_forward_kernel
from flashverify_kernels.device.selection import SelectedSizes
from flashverify_kernels.merge import aligned
from flashverify_kernels.options import Precision
from flashverify_kernels.selection import Prepared, lists_of, named_of
from flashverify_kernels.views import view

_LOG2_E = math.log2(math.e)
_WIDE = 64


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


def selected_config(*, d: int, dv: int, dtype: torch.dtype) -> LaunchConfig:
    """Choose the launch configuration: a list has few rows, those of a group of heads."""
    wide = max(d, dv) > _WIDE or dtype == torch.float32
    return LaunchConfig(block_m=16, block_n=32 if wide else 64, num_warps=4, num_stages=1 if wide else 2)


def selected_constants(
    config: LaunchConfig, *, d: int, dv: int, aligned: bool, causal: bool, precision: Precision
) -> dict[str, Any]:
    """The constexpr arguments and the options of a launch.

    Args:
        config: tiles, warps and stages.
        d: head dimension of q and k.
        dv: head dimension of v.
        aligned: whether every row starts on 16 bytes.
        causal: whether there is a causal mask.
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
    _launch(selected_forward_kernel, _list_programs(tensors, call), tensors, call, rest)


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
    k = tensors["k"]
    rows = {name: tensors[name] for name in ("q", "k", "v", "o", "do", "dq")}
    _launch(selected_dq_kernel, _list_programs(rows, call), rows, call, shared | own)
    keys = {name: tensors[name] for name in ("q", "k", "v", "do", "dk", "dv")}
    config = _config(keys)
    programs = k.shape[0] * k.shape[1] * -(-k.shape[2] // config.block_n)
    _launch(selected_dkdv_kernel, programs, keys, call, shared | {"selected": named_of(call.found, k.shape[2])})


def _config(tensors: dict[str, torch.Tensor]) -> LaunchConfig:
    return selected_config(d=tensors["k"].shape[3], dv=tensors["v"].shape[3], dtype=tensors["q"].dtype)


def _list_programs(tensors: dict[str, torch.Tensor], call: SelectedCall) -> int:
    """One for each tile of packed rows of each list."""
    q, k = tensors["q"], tensors["k"]
    rows, group = call.found.selection.rows, q.shape[1] // max(k.shape[1], 1)
    tiles = -(-group * rows // _config(tensors).block_m)
    return k.shape[0] * k.shape[1] * -(-q.shape[2] // rows) * tiles


def _launch(
    kernel: Any, programs: int, tensors: dict[str, torch.Tensor], call: SelectedCall, arguments: dict[str, Any]
) -> None:
    if not programs:
        return
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    config, d, dv = _config(tensors), q.shape[3], v.shape[3]
    with torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext():
        kernel[(programs,)](
            **{f"{name}_view": view(x) for name, x in tensors.items()},
            **arguments,
            k_lengths_ptr=call.key_lengths,
            scale_log2=call.scale * _LOG2_E,
            sizes=SelectedSizes(
                heads=q.shape[1],
                kv_heads=k.shape[1],
                group=q.shape[1] // max(k.shape[1], 1),
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
                precision=call.precision,
            ),
        )
