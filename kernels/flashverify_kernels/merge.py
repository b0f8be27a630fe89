"""Merging partial attentions of the same queries over disjoint keys: ring attention, chunked keys, split decoding."""

import contextlib
import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from flashverify_kernels.config import padded_dim
from flashverify_kernels.device.merge import merge_backward_kernel, merge_kernel
from flashverify_kernels.dispatch import dispatched, ops
from flashverify_kernels.plans import launched
from flashverify_kernels.runtime import INTERPRETED, device_error, supported
from flashverify_kernels.views import part_view, view

_LOG2_E = math.log2(math.e)
_LN_2 = math.log(2)
COMPILED_TILE = 2**12
_TILE = 2**15 if INTERPRETED else COMPILED_TILE
"""Elements of O that one program holds at a time."""
_FEW = 8
"""Partials that go one by one."""
_MAX_ROWS = 2**31 - 2**12  # row numbers of a last, padded tile still fit an int32


def merge(
    o: torch.Tensor, lse: torch.Tensor, *, allow_interpreted_bf16: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge attentions of the same queries over disjoint sets of keys into the attention over all of them.

        LSE = log(sum_p exp(LSE_p)),  O = sum_p exp(LSE_p - LSE) O_p

    Differentiable in both arguments and associative up to rounding. An empty partial has LSE_p = -inf: its O_p is never
    read and its gradients are exactly 0. Where all partials are empty (or there is none), O = 0 and LSE = -inf. A row's
    result depends on the partials of that row and on nothing else.

    Args:
        o: `[P, B, H, S, Dv]` fp16, bf16 or fp32, Dv a multiple of 8 up to 256; any strides.
        lse: `[P, B, H, S]` fp32, natural logarithm, -inf or finite of any size; any strides.
        allow_interpreted_bf16: as in `attention`.

    Returns:
        O, `[B, H, S, Dv]` in the dtype of `o`, and LSE, `[B, H, S]` fp32.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, device or value that is not accepted.
    """
    if dispatched(o, lse):
        o, lse = ops.merge(o, lse, bool(allow_interpreted_bf16))
        return o, lse
    check_merge(o, lse, allow_interpreted_bf16)
    merged: tuple[torch.Tensor, torch.Tensor] = _Merge.apply(o, lse)  # type: ignore[no-untyped-call]
    return merged


class _Merge(torch.autograd.Function):
    """Saves and unpacks; the launchers compute."""

    @staticmethod
    def forward(ctx: Any, o: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = dense_rows(o), lse.contiguous()
        ctx.save_for_backward(o, lse)
        ctx.set_materialize_grads(False)
        return merge_forward(o, lse)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        if do is None and dlse is None:
            return None, None
        return launch_merge_backward(do, dlse, *ctx.saved_tensors, needs=ctx.needs_input_grad)


def merge_forward(o: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge checked partials of any strides: the merged O and its natural LSE."""
    o, lse = dense_rows(o), lse.contiguous()
    merged = torch.empty(o.shape[1:], dtype=o.dtype, device=o.device)
    merged_lse = torch.empty(lse.shape[1:], dtype=lse.dtype, device=lse.device)
    launch_merge(o, lse, merged, merged_lse)
    return merged, merged_lse


def launch_merge(
    o: torch.Tensor,
    lse: torch.Tensor,
    merged: torch.Tensor,
    merged_lse: torch.Tensor,
    *,
    base2: bool = False,
    lse_scale: float = 1.0,
) -> None:
    """Merge checked partials into given tensors.

    Args:
        o: `[P, B, H, S, Dv]`, last stride 1.
        lse: `[P, B, H, S]` fp32 contiguous.
        merged: `[B, H, S, Dv]` of any dtype, last stride 1; written.
        merged_lse: `[B, H, S]` fp32 contiguous; written.
        base2: whether `lse` is in base 2 instead of natural units.
        lse_scale: factor of `merged_lse`.
    """
    _launch(
        merge_kernel,
        o,
        partials=part_view(o),
        lse_ptr=lse,
        merged=view(merged),
        merged_lse_ptr=merged_lse,
        to_log2=1.0 if base2 else _LOG2_E,
        from_log2=1.0 if base2 else _LN_2,
        lse_scale=lse_scale,
        rows_aligned=aligned(o, merged),
    )


def launch_merge_backward(
    do: torch.Tensor | None,
    dlse: torch.Tensor | None,
    o: torch.Tensor,
    lse: torch.Tensor,
    *,
    needs: tuple[bool, bool] = (True, True),
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Compute the gradients of the partial outputs and of their LSE.

    Args:
        do: gradient of the merged O, `[B, H, S, Dv]`, or None for zeros.
        dlse: gradient of the merged LSE, `[B, H, S]` fp32, or None for zeros.
        o: `[P, B, H, S, Dv]`, last stride 1.
        lse: `[P, B, H, S]` fp32 contiguous, natural logarithm.
        needs: whether the gradients of `o` and `lse` are wanted.
    """
    do = torch.zeros(o.shape[1:], dtype=o.dtype, device=o.device) if do is None else dense_rows(do)
    dpart = torch.empty(o.shape, dtype=o.dtype, device=o.device) if needs[0] else None
    dpart_lse = torch.empty_like(lse) if needs[1] else None
    _launch(
        merge_backward_kernel,
        o,
        partials=part_view(o),
        lse_ptr=lse,
        do_view=view(do),
        dlse_ptr=None if dlse is None else dlse.contiguous(),
        dpart_ptr=dpart,
        dpart_lse_ptr=dpart_lse,
        to_log2=_LOG2_E,
        rows_aligned=aligned(o, do, *(() if dpart is None else (dpart,))),
    )
    return dpart, dpart_lse


def merge_tiles(parts: int, dv: int, elements: int = _TILE) -> tuple[int, int]:
    """Partials per step and rows per program, from the number of partials and channels alone.

    Few partials go one by one: a sum over several in a step crosses threads.
    """
    width = padded_dim(dv)
    if parts <= _FEW:
        return 1, max(elements // width, 1)
    block_p = min(1 << max(parts - 1, 0).bit_length(), max(elements // width, 1))
    return block_p, max(elements // (width * block_p), 1)


def merge_constants(parts: int, dv: int, *, aligned: bool, elements: int = _TILE) -> dict[str, Any]:
    """The constexpr arguments and launch options; with the dtypes and the presence of pointers, the compile key."""
    block_p, block_m = merge_tiles(parts, dv, elements)
    return {
        "BLOCK_P": block_p,
        "BLOCK_M": block_m,
        "BLOCK_DV": padded_dim(dv),
        "EVEN_DV": padded_dim(dv) == dv,
        "ALIGNED": aligned,
        "num_warps": 4,
        "enable_fp_fusion": False,  # a weighted partial is rounded before it is added, here as in the interpreter
    }


def _launch(kernel: Any, o: torch.Tensor, *, rows_aligned: bool, **arguments: Any) -> None:
    parts, batch, heads, seq, dv = o.shape
    rows = batch * heads * seq
    if rows == 0:
        return
    constants = merge_constants(parts, dv, aligned=rows_aligned)
    with torch.cuda.device(o.device) if o.is_cuda else contextlib.nullcontext():
        programs = -(-rows // constants["BLOCK_M"])
        launched(kernel, programs, **arguments, parts=parts, rows=rows, heads=heads, seq=seq, dv8=dv // 8, **constants)


def aligned(*tensors: torch.Tensor) -> bool:
    """Whether every row of every tensor starts on 16 bytes and on a multiple of 8 elements of it, axes of size 1 included."""

    def steps(x: torch.Tensor) -> bool:
        return all(stride % max(8, 16 // x.element_size()) == 0 for stride in x.stride()[:-1])

    return all(x.data_ptr() % 16 == 0 and steps(x) for x in tensors)


def dense_rows(x: torch.Tensor) -> torch.Tensor:
    """`x` with a last stride of 1."""
    return x if x.stride(-1) == 1 else x.contiguous()


def check_merge(o: torch.Tensor, lse: torch.Tensor, allow_interpreted_bf16: bool) -> None:
    """Check what `merge` is given, see there."""
    for name, x in (("o", o), ("lse", lse)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if o.dim() != 5:
        raise ValueError(f"o: expected 5 axes [P, B, H, S, Dv], got shape {tuple(o.shape)}")
    reason = device_error(o.device)
    if reason is not None:
        raise ValueError(f"o: {reason}")
    reason = supported(o.dtype)
    if reason is not None and not (o.dtype == torch.bfloat16 and allow_interpreted_bf16):
        raise TypeError(f"o: {reason}")
    dv = o.shape[4]
    if not (8 <= dv <= 256 and dv % 8 == 0):
        raise ValueError(f"o: the head dimension must be a multiple of 8 from 8 to 256, got {dv}")
    if o.shape[1:4].numel() > _MAX_ROWS:
        raise ValueError(f"o: at most {_MAX_ROWS} rows (B * H * S), got {o.shape[1:4].numel()}")
    if lse.dtype != torch.float32:
        raise TypeError(f"lse: expected torch.float32, got {lse.dtype}")
    if lse.shape != o.shape[:4]:
        raise ValueError(
            f"lse: expected shape {tuple(o.shape[:4])} (that of o without channels), got {tuple(lse.shape)}"
        )
    if lse.device != o.device:
        raise ValueError(f"lse: expected device {o.device} (that of o), got {lse.device}")
