"""Every check of what callers pass in, and the one place where defaults are resolved."""

import math
from dataclasses import dataclass
from typing import get_args

import torch

from flashverify_kernels import hopper
from flashverify_kernels.config import Configs, Kind, LaunchConfig, config_error, launch_config
from flashverify_kernels.lengths import MAX_LENGTH, check_packed
from flashverify_kernels.masking import Extent, Mask, check_mask
from flashverify_kernels.options import Causal, Layout, Options, Precision
from flashverify_kernels.runtime import INTERPRETED, device_error, shared_memory_limit, supported
from flashverify_kernels.terms import Terms, check_terms

_AXES: dict[Layout, tuple[int, int, int, int]] = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3)}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CheckedCall:
    """A checked call with every default resolved.

    Attributes:
        sequences: independent problems per head: batches, or packed sequences of one batch.
        packed: whether they are packed.
        batch: size of the batch axis of the tensors.
        heads: query heads.
        kv_heads: kv heads.
        rows: queries per batch.
        keys: keys per batch.
        sq: queries of the longest sequence.
        sk: keys of the longest sequence.
        d: head dimension of q and k.
        dv: head dimension of v.
        scale: of the logits.
        mask: parts of the mask.
        terms: what else is done to logits and weights.
        precision: of the dot products of fp32 inputs.
        configs: launch configuration by kernel.
    """

    sequences: int
    packed: bool
    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    sq: int
    sk: int
    d: int
    dv: int
    scale: float
    mask: Mask
    terms: Terms
    precision: Precision
    configs: dict[Kind, LaunchConfig]


def axes(layout: Layout) -> tuple[int, int, int, int]:
    """The permutation between `layout` and (batch, head, sequence, channel); it is its own inverse."""
    return _AXES[layout]


def check_call(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    options: Options,
    *,
    capability: tuple[int, int] | None = None,
    dtype: torch.dtype | None = None,
) -> CheckedCall:
    """Check inputs and options against each other.

    Args:
        q: as in `launch.forward`.
        k: likewise.
        v: likewise.
        options: see `attention`.
        capability: compute capability of the GPU that is launched on; None where nothing is launched, or kernels are interpreted.
        dtype: of O; that of q where it is None.

    Raises:
        TypeError: an argument of the wrong type, or dtypes that differ.
        ValueError: anything else; the message names the argument, the value and what is accepted.
    """
    _one_of("layout", options.layout, get_args(Layout))
    _one_of("precision", options.precision, get_args(Precision))
    _one_of("causal", options.causal, (None, *get_args(Causal)))
    for name, x in (("q", q), ("k", k), ("v", v)):
        _check_input(name, x, q, options)
    perm = axes(options.layout)
    batch, heads, rows, d = (q.shape[a] for a in perm)
    _, kv_heads, keys, dv = (v.shape[a] for a in perm)
    _check_shape("k", k, (batch, kv_heads, keys, d), options.layout, "that of v with the channels of q")
    _check_shape("v", v, (batch, kv_heads, keys, dv), options.layout, "the batch of q")
    for name, dim in (("q", d), ("v", dv)):
        if not (8 <= dim <= 256 and dim % 8 == 0):
            raise ValueError(f"{name}: the head dimension must be a multiple of 8 from 8 to 256, got {dim}")
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(f"q: {heads} query heads are not a multiple of {kv_heads} kv heads")
    for name, length in (("q", rows), ("k", keys)):
        if length > MAX_LENGTH:
            raise ValueError(f"{name}: at most {MAX_LENGTH} positions, got {length}")
    packed = options.packed
    check_packed(packed, rows, keys, batch, q)
    sequences, sq, sk = (batch, rows, keys) if packed is None else (packed.sequences, packed.max_q, packed.max_k)
    extent = Extent(batch=batch, heads=heads, rows=rows, keys=keys, max_q=sq, max_k=sk, device=q.device)
    mask = check_mask(options, extent)
    scale = check_scale(options.scale, d)
    terms = check_terms(options, extent, q.dtype, scale)
    return CheckedCall(
        sequences=sequences,
        packed=packed is not None,
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        rows=rows,
        keys=keys,
        sq=sq,
        sk=sk,
        d=d,
        dv=dv,
        scale=scale,
        mask=mask,
        terms=terms,
        precision=options.precision if q.dtype == torch.float32 else "ieee",
        configs=_check_configs((q, k, v), d, dv, sq, mask, terms, options, capability, dtype),
    )


def check_like(name: str, x: torch.Tensor, like: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Check a further tensor of the backward: its type, shape, dtype and device."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype}, got {x.dtype}")
    if tuple(x.shape) != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {tuple(x.shape)}")
    if x.device != like.device:
        raise ValueError(f"{name}: expected device {like.device} (that of q), got {x.device}")


def _one_of(name: str, value: object, accepted: tuple[object, ...]) -> None:
    if value not in accepted:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, accepted))}, got {value!r}")


def _check_input(name: str, x: torch.Tensor, q: torch.Tensor, options: Options) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.dim() != 4:
        raise ValueError(f"{name}: expected 4 axes ({options.layout}), got shape {tuple(x.shape)}")
    if x.dtype != q.dtype:
        raise TypeError(f"{name}: expected {q.dtype} (that of q), got {x.dtype}")
    if x.device != q.device:
        raise ValueError(f"{name}: expected device {q.device} (that of q), got {x.device}")
    if x.stride(3) != 1:
        raise ValueError(f"{name}: the last axis must have stride 1, got strides {x.stride()}")
    reason = device_error(x.device)
    if reason is not None:
        raise ValueError(f"{name}: {reason}")
    reason = supported(x.dtype)
    if reason is not None and not (x.dtype == torch.bfloat16 and options.allow_interpreted_bf16):
        raise TypeError(f"{name}: {reason}")


def _check_shape(name: str, x: torch.Tensor, bhsd: tuple[int, ...], layout: Layout, what: str) -> None:
    expected = tuple(bhsd[a] for a in axes(layout))
    if tuple(x.shape) != expected:
        raise ValueError(f"{name}: expected shape {expected} ({layout}; {what}), got {tuple(x.shape)}")


def check_scale(scale: float | None, d: int) -> float:
    """Check the scale; returns the one in force."""
    if scale is None:
        return 1 / math.sqrt(d)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise TypeError(f"scale: expected a number, got {scale!r} ({type(scale).__name__})")
    if not abs(scale) <= 2.0**127:
        raise ValueError(f"scale: expected a finite fp32 number, got {scale!r}")
    return float(scale)


def _check_configs(
    tensors: tuple[torch.Tensor, ...],
    d: int,
    dv: int,
    sq: int,
    mask: Mask,
    terms: Terms,
    options: Options,
    capability: tuple[int, int] | None,
    dtype: torch.dtype | None,
) -> dict[Kind, LaunchConfig]:
    q, configs = tensors[0], options.config
    if configs is not None and not isinstance(configs, Configs):
        raise TypeError(f"config: expected Configs, got {type(configs).__name__}")
    limit = shared_memory_limit(q.device)
    blocks = mask.block_size
    resolved: dict[Kind, LaunchConfig] = {}
    for kind in get_args(Kind):
        config = getattr(configs, kind, None)
        if config is None:
            config = launch_config(
                kind,
                d=d,
                dv=dv,
                dtype=q.dtype,
                mask=mask.flags,
                sq=sq,
                blocks=blocks,
                pairs=terms.pairs,
                limit=limit,
                whole=options.whole,
                packed=options.packed is not None,
                capability=capability,
                hopper=hopper.may_be_asked(capability, tensors, terms, dtype),
                interpreted=INTERPRETED,
            )
        elif not isinstance(config, LaunchConfig):
            raise TypeError(f"config.{kind}: expected a LaunchConfig, got {type(config).__name__}")
        reason = config_error(kind, config, d=d, dv=dv, dtype=q.dtype, blocks=blocks, pairs=terms.pairs, limit=limit)
        if reason is not None:
            raise ValueError(f"config.{kind}: {reason}")
        resolved[kind] = config
    return resolved
