"""Every check of what callers pass in, and the one place where defaults are resolved."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from flashverify_kernels.config import Configs, Kind, LaunchConfig, MaskKind, config_error, launch_config
from flashverify_kernels.runtime import INTERPRETED, device_error, shared_memory_limit, supported
from flashverify_kernels.tree import TreeMask

Causal = Literal["top-left", "bottom-right"]
Layout = Literal["bhsd", "bshd"]
Precision = Literal["ieee", "tf32", "tf32x3"]

_AXES: dict[Layout, tuple[int, int, int, int]] = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3)}
_MAX_LENGTH = 2**31 - 2**12  # row numbers of a last, padded tile still fit an int32


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Options:
    """What an attention computes and how; the fields are the keyword arguments of `attention`."""

    scale: float | None = None
    causal: Causal | None = None
    key_lengths: torch.Tensor | None = None
    tree: TreeMask | None = None
    precision: Precision = "ieee"
    layout: Layout = "bhsd"
    config: Configs | None = None
    allow_interpreted_bf16: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Problem:
    """A checked problem with every default resolved."""

    batch: int
    heads: int
    kv_heads: int
    sq: int
    sk: int
    d: int
    dv: int
    scale: float
    mask: MaskKind
    align_end: bool
    precision: Precision
    configs: dict[Kind, LaunchConfig]


def axes(layout: Layout) -> tuple[int, int, int, int]:
    """The permutation between `layout` and (batch, head, sequence, channel); it is its own inverse."""
    return _AXES[layout]


def check_problem(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options) -> Problem:
    """Check inputs and options against each other.

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
    batch, heads, sq, d = (q.shape[a] for a in perm)
    _, kv_heads, sk, dv = (v.shape[a] for a in perm)
    _check_shape("k", k, (batch, kv_heads, sk, d), options.layout, "that of v with the channels of q")
    _check_shape("v", v, (batch, kv_heads, sk, dv), options.layout, "the batch of q")
    for name, dim in (("q", d), ("v", dv)):
        if not (8 <= dim <= 256 and dim % 8 == 0):
            raise ValueError(f"{name}: the head dimension must be a multiple of 8 from 8 to 256, got {dim}")
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(f"q: {heads} query heads are not a multiple of {kv_heads} kv heads")
    for name, length in (("q", sq), ("k", sk)):
        if length > _MAX_LENGTH:
            raise ValueError(f"{name}: at most {_MAX_LENGTH} positions, got {length}")
    mask = _check_mask(q, batch, sq, sk, options)
    return Problem(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        sq=sq,
        sk=sk,
        d=d,
        dv=dv,
        scale=_check_scale(options.scale, d),
        mask=mask,
        align_end=options.causal == "bottom-right",
        precision=options.precision if q.dtype == torch.float32 else "ieee",
        configs=_check_configs(q, d, dv, sq, mask, options.config),
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


def _check_scale(scale: float | None, d: int) -> float:
    if scale is None:
        return 1 / math.sqrt(d)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise TypeError(f"scale: expected a number, got {scale!r} ({type(scale).__name__})")
    if not abs(scale) <= 2.0**127:
        raise ValueError(f"scale: expected a finite fp32 number, got {scale!r}")
    return float(scale)


def _check_mask(q: torch.Tensor, batch: int, sq: int, sk: int, options: Options) -> MaskKind:
    lengths = options.key_lengths
    if lengths is not None:
        check_like("key_lengths", lengths, q, (batch,), torch.int32)
        if not lengths.is_contiguous():
            raise ValueError(f"key_lengths: expected a contiguous tensor, got strides {lengths.stride()}")
        if lengths.device.type == "cpu" and batch and (int(lengths.min()) < 0 or int(lengths.max()) > sk):
            raise ValueError(f"key_lengths: expected values from 0 to {sk}, got {lengths.tolist()}")
    tree = options.tree
    if tree is None:
        return "none" if options.causal is None else "causal"
    if not isinstance(tree, TreeMask):
        raise TypeError(f"tree: expected a TreeMask, got {type(tree).__name__}")
    if options.causal is not None:
        raise ValueError(f"tree: cannot be combined with causal={options.causal!r}; a tree orders its nodes itself")
    if tree.nodes != sq:
        raise ValueError(f"tree: expected one node per query, {sq}, got {tree.nodes}")
    if sk < sq:
        raise ValueError(f"tree: expected the keys to be a prefix and the {sq} nodes, got only {sk} keys")
    if tree.bits.device != q.device:
        raise ValueError(f"tree: expected device {q.device} (that of q), got {tree.bits.device}")
    return "tree"


def _check_configs(
    q: torch.Tensor, d: int, dv: int, sq: int, mask: MaskKind, configs: Configs | None
) -> dict[Kind, LaunchConfig]:
    if configs is not None and not isinstance(configs, Configs):
        raise TypeError(f"config: expected Configs, got {type(configs).__name__}")
    limit = shared_memory_limit(q.device)
    resolved: dict[Kind, LaunchConfig] = {}
    for kind in get_args(Kind):
        config = getattr(configs, kind, None)
        if config is None:
            config = launch_config(
                kind, d=d, dv=dv, dtype=q.dtype, mask=mask, sq=sq, limit=limit, interpreted=INTERPRETED
            )
        elif not isinstance(config, LaunchConfig):
            raise TypeError(f"config.{kind}: expected a LaunchConfig, got {type(config).__name__}")
        reason = config_error(kind, config, d=d, dv=dv, dtype=q.dtype, limit=limit)
        if reason is not None:
            raise ValueError(f"config.{kind}: {reason}")
        resolved[kind] = config
    return resolved
