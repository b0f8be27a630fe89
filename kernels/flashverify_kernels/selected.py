"""Attention over keys that are chosen by index, as in sparse attention whose blocks another network picks; forward and backward."""

import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from flashverify_kernels.decode_validation import check_names_of
from flashverify_kernels.lengths import MAX_LENGTH
from flashverify_kernels.masking import Extent, check_mask
from flashverify_kernels.options import Causal, DecodeOptions, Layout, Options, Precision
from flashverify_kernels.runtime import device_error, supported
from flashverify_kernels.selected_launch import SelectedCall, launch_backward, launch_forward
from flashverify_kernels.selection import Selection, check_selection, prepared
from flashverify_kernels.validation import axes, check_scale

_LN_2 = math.log(2)
_MAX_DIM = 256


def selected_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    selection: Selection,
    *,
    scale: float | None = None,
    causal: Causal | None = None,
    key_lengths: torch.Tensor | None = None,
    precision: Precision = "ieee",
    layout: Layout = "bhsd",
    return_lse: bool = False,
    allow_interpreted_bf16: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale * q k^T) v over the keys of the blocks that each query's list names.

    A key takes part where its block is named, it is before the key length, and `causal` does not hide it. Differentiable in q, k and v,
    through O and the LSE; without atomics.

    Args:
        q: `[B, Hq, Sq, D]` fp16, bf16 or fp32, D a multiple of 8 up to 256; any strides with a last one of 1.
        k: `[B, Hkv, Sk, D]`.
        v: `[B, Hkv, Sk, Dv]`.
        selection: the lists.
        scale: finite, any sign; 1 / sqrt(D) by default.
        causal: "bottom-right": query i sees key j where j <= i + n - Sq, of n keys; "top-left": where j <= i.
        key_lengths: `[B]` int32, n.
        precision: of the dot products of fp32 inputs.
        layout: order of the axes of q, k, v and O: "bhsd", or "bshd".
        return_lse: also return the LSE.
        allow_interpreted_bf16: as in `attention`.

    Returns:
        O, `[B, Hq, Sq, Dv]` in the layout and dtype of q; with `return_lse` also the natural-log LSE, `[B, Hq, Sq]` fp32. A query
        without keys has O = 0 and LSE = -inf.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    names = DecodeOptions(causal=causal, precision=precision, layout=layout)
    check_names_of(names)
    perm = axes(layout)
    for name, x in (("q", q), ("k", k), ("v", v)):
        _check_operand(name, x, q, allow_interpreted_bf16)
    q, k, v = (x.permute(perm) for x in (q, k, v))
    batch, heads, sq, d = q.shape
    kv_heads, sk = k.shape[1:3]
    if k.shape != (batch, kv_heads, sk, d) or v.shape[:3] != k.shape[:3]:
        raise ValueError(f"k: expected keys and values of q {tuple(q.shape)}, got {tuple(k.shape)}, {tuple(v.shape)}")
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(f"q: {heads} query heads are not a multiple of {kv_heads} kv heads")
    if sq + sk > MAX_LENGTH:
        raise ValueError(f"k: at most {MAX_LENGTH} queries and keys, got {sq} and {sk}")
    if batch * heads * sq > MAX_LENGTH:
        raise ValueError(f"q: at most {MAX_LENGTH} rows of all heads and sequences, got {batch * heads * sq}")
    check_mask(
        Options(causal=causal, key_lengths=key_lengths),
        Extent(batch=batch, heads=heads, rows=sq, keys=sk, max_q=sq, max_k=sk, device=q.device),
    )
    check_selection(selection, q, batch, kv_heads, sq, sk)
    call = SelectedCall(
        found=prepared(selection),
        scale=check_scale(scale, d),
        causal=causal,
        key_lengths=key_lengths,
        precision=precision if q.dtype == torch.float32 else "ieee",
    )
    o, lse = _Selected.apply(q, k, v, call, perm)  # type: ignore[no-untyped-call]
    o = o.permute(perm)
    return (o, lse) if return_lse else o


class _Selected(torch.autograd.Function):
    """Saves and unpacks; the launchers compute. Outputs and gradients lie in memory in the order of `perm`."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, call: SelectedCall, perm: tuple[int, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        o = _empty((*q.shape[:3], v.shape[3]), perm, q)
        lse2 = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        launch_forward(q, k, v, o, lse2, call)
        lengths = [] if call.key_lengths is None else [call.key_lengths]
        ctx.save_for_backward(q, k, v, o, lse2, *lengths)  # the lengths are saved so that a change is noticed
        ctx.call, ctx.perm = call, perm
        ctx.set_materialize_grads(False)
        return o, lse2 * _LN_2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        q, k, v, o, lse2, *_ = ctx.saved_tensors
        if do is None:
            do = torch.zeros_like(o)
        elif do.stride(3) != 1:
            do = do.contiguous()
        gradients = {f"d{name}": _empty(x.shape, ctx.perm, x) for name, x in (("q", q), ("k", k), ("v", v))}
        tensors = {"q": q, "k": k, "v": v, "o": o, "do": do, **gradients}
        launch_backward(tensors, lse2, None if dlse is None else dlse.contiguous(), ctx.call)
        return (*gradients.values(), None, None)


def _empty(shape: tuple[int, ...], perm: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """A tensor of axes batch, head, sequence, channel that lies in memory in the order of `perm`."""
    return torch.empty([shape[a] for a in perm], dtype=like.dtype, device=like.device).permute(perm)


def _check_operand(name: str, x: torch.Tensor, q: torch.Tensor, allow_interpreted_bf16: bool) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.dim() != 4 or x.stride(3) != 1:
        raise ValueError(f"{name}: expected 4 axes, the last with stride 1, got {tuple(x.shape)}, {x.stride()}")
    if x.dtype != q.dtype or x.device != q.device:
        raise TypeError(f"{name}: expected {q.dtype} on {q.device} (those of q), got {x.dtype} on {x.device}")
    if not 8 <= x.shape[3] <= _MAX_DIM or x.shape[3] % 8:
        raise ValueError(f"{name}: the head dimension must be a multiple of 8 from 8 to {_MAX_DIM}, got {x.shape[3]}")
    reason = device_error(x.device)
    if reason is not None:
        raise ValueError(f"{name}: {reason}")
    reason = supported(x.dtype)
    if reason is not None and not (x.dtype == torch.bfloat16 and allow_interpreted_bf16):
        raise TypeError(f"{name}: {reason}")
