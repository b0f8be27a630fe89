"""Options of attention and decode as the plain values of an operator, tensors first, and back."""

from collections.abc import Sequence
from typing import Any

import torch

from flashverify_kernels.bitmask import BitMask
from flashverify_kernels.blocks import BlockMask
from flashverify_kernels.config import Configs, LaunchConfig
from flashverify_kernels.decode_validation import DecodeOptions
from flashverify_kernels.dropout import Dropout
from flashverify_kernels.options import Options, Window
from flashverify_kernels.packed import Packed
from flashverify_kernels.tree import TreeMask

ATTENTION_TENSORS = 11
"""Tensors among the values of `flatten`; the first two are differentiable."""
ATTENTION_SCHEMA = (
    "Tensor? bias, Tensor? sink, Tensor? alibi_slopes, Tensor? query_lengths, Tensor? key_lengths, Tensor? tree, "
    "Tensor? bitmask, Tensor? live_along_keys, Tensor? live_along_queries, Tensor? cu_q, Tensor? cu_k, "
    "float? scale, str? causal, SymInt[]? window, SymInt[]? block_size, SymInt[]? longest, float? softcap, "
    "float? dropout, SymInt seed, SymInt offset, str precision, str layout, int[]? config, bool allow_interpreted_bf16"
)
"""The parameters that the values of `flatten` are given to."""
DECODE_SCHEMA = (
    "Tensor? key_lengths, Tensor? block_table, Tensor? tree, Tensor? bitmask, float? scale, str? causal, "
    "SymInt[]? window, SymInt? n_splits, str precision, str layout, int[]? config, bool allow_interpreted_bf16"
)
"""The parameters that the values of `flatten_decode` are given to."""

_UNBOUNDED = -1
_FARTHEST = 2**62
_SEEDS = 2**64
_KINDS = ("forward", "dq", "dkdv")


def parameter(schema: str, name: str) -> int:
    """The number of a parameter of `schema`."""
    return [parameter.split()[-1] for parameter in schema.split(", ")].index(name)


class NotPlainError(TypeError):
    """An option has a type or value that no operator takes; the checks of the arguments say which."""

    def __init__(self) -> None:
        super().__init__("an option has a type or value that an operator cannot take")


def flatten(options: Options) -> tuple[Any, ...]:
    """The values of the parameters `ATTENTION_SCHEMA`.

    Raises:
        NotPlainError: an option is not what it should be.
    """
    tree = _instance(options.tree, TreeMask)
    bitmask = _instance(options.bitmask, BitMask)
    blocks = _instance(options.blocks, BlockMask)
    packed = _instance(options.packed, Packed)
    dropout = _instance(options.dropout, Dropout)
    return (
        _instance(options.bias, torch.Tensor),
        _instance(options.sink, torch.Tensor),
        _instance(options.alibi_slopes, torch.Tensor),
        _instance(options.query_lengths, torch.Tensor),
        _instance(options.key_lengths, torch.Tensor),
        None if tree is None else tree.bits,
        None if bitmask is None else bitmask.words,
        None if blocks is None else blocks.along_keys,
        None if blocks is None else blocks.along_queries,
        None if packed is None else _instance(packed.cu_q, torch.Tensor),
        None if packed is None else _instance(packed.cu_k, torch.Tensor),
        _number(options.scale),
        _instance(options.causal, str),
        _window(options.window),
        None if blocks is None else [blocks.rows, blocks.keys],
        None if packed is None else [_whole(packed.max_q), _whole(packed.max_k)],
        _number(options.softcap),
        None if dropout is None else float(dropout.p),
        0 if dropout is None else _signed(dropout.seed),
        0 if dropout is None else dropout.offset,
        _required(options.precision, str),
        _required(options.layout, str),
        _configs(options.config),
        bool(options.allow_interpreted_bf16),
    )


def unflatten(values: Sequence[Any]) -> Options:
    """The options that `flatten` made `values` of."""
    bias, sink, slopes, query_lengths, key_lengths, tree, bitmask, along_keys, along_queries, cu_q, cu_k = values[
        :ATTENTION_TENSORS
    ]
    scale, causal, window, block_size, longest, softcap, p, seed, offset, precision, layout, config, interpreted = (
        values[ATTENTION_TENSORS:]
    )
    return Options(
        scale=scale,
        causal=causal,
        window=_sides(window),
        query_lengths=query_lengths,
        key_lengths=key_lengths,
        tree=None if tree is None else TreeMask(tree),
        bitmask=None if bitmask is None else BitMask(bitmask),
        blocks=None if block_size is None else BlockMask(block_size[0], block_size[1], along_keys, along_queries),
        packed=None if longest is None else Packed(cu_q, cu_k, longest[0], longest[1]),
        softcap=softcap,
        alibi_slopes=slopes,
        bias=bias,
        sink=sink,
        dropout=None if p is None else Dropout(p, seed % _SEEDS, offset),
        precision=precision,
        layout=layout,
        config=_to_configs(config),
        allow_interpreted_bf16=interpreted,
    )


def flatten_decode(options: DecodeOptions) -> tuple[Any, ...]:
    """The values of the parameters `DECODE_SCHEMA`.

    Raises:
        NotPlainError: an option is not what it should be.
    """
    mask = options.tree
    if mask is not None and not isinstance(mask, (TreeMask, BitMask)):
        raise NotPlainError
    return (
        _instance(options.key_lengths, torch.Tensor),
        _instance(options.block_table, torch.Tensor),
        mask.bits if isinstance(mask, TreeMask) else None,
        mask.words if isinstance(mask, BitMask) else None,
        _number(options.scale),
        _instance(options.causal, str),
        _window(options.window),
        None if options.n_splits is None else _whole(options.n_splits),
        _required(options.precision, str),
        _required(options.layout, str),
        None if options.config is None else _config(options.config),
        bool(options.allow_interpreted_bf16),
    )


def unflatten_decode(values: Sequence[Any]) -> DecodeOptions:
    """The options that `flatten_decode` made `values` of."""
    key_lengths, table, tree, bitmask, scale, causal, window, n_splits, precision, layout, config, interpreted = values
    mask = None if tree is None else TreeMask(tree)
    return DecodeOptions(
        scale=scale,
        causal=causal,
        window=_sides(window),
        key_lengths=key_lengths,
        block_table=table,
        tree=mask if bitmask is None else BitMask(bitmask),
        n_splits=n_splits,
        precision=precision,
        layout=layout,
        config=None if config is None else _to_config(config),
        allow_interpreted_bf16=interpreted,
    )


def _instance(value: Any, kind: type) -> Any:
    return None if value is None else _required(value, kind)


def _required(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise NotPlainError
    return value


def _whole(value: Any) -> Any:
    """A whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)) or not -(2**63) <= value < 2**63:
        raise NotPlainError
    return value


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 2.0**1000:
        raise NotPlainError
    return float(value)


def _signed(seed: int) -> int:
    """The whole number of 64 bits with a sign that has the bits of `seed`."""
    return seed - _SEEDS if seed >= _SEEDS // 2 else seed


def _window(window: Any) -> list[int] | None:
    if window is None:
        return None
    if not isinstance(window, tuple) or len(window) != 2:
        raise NotPlainError
    for side in window:
        if side is not None and (isinstance(side, bool) or not isinstance(side, (int, torch.SymInt)) or side < 0):
            raise NotPlainError
    return [_UNBOUNDED if side is None else min(side, _FARTHEST) for side in window]


def _sides(window: Sequence[int] | None) -> Window | None:
    if window is None:
        return None
    left, right = (None if side == _UNBOUNDED else side for side in window)
    return left, right


def _config(config: LaunchConfig) -> list[int]:
    _required(config, LaunchConfig)
    return [_whole(x) for x in (config.block_m, config.block_n, config.num_warps, config.num_stages)]


def _to_config(values: Sequence[int]) -> LaunchConfig | None:
    block_m, block_n, num_warps, num_stages = values
    return LaunchConfig(block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages)


def _configs(configs: Configs | None) -> list[int] | None:
    """The launch configurations of all kernels behind each other; one that is all 0 is the default."""
    if configs is None:
        return None
    _required(configs, Configs)
    found: list[int] = []
    for config in (configs.forward, configs.dq, configs.dkdv):
        values = [0, 0, 0, 0] if config is None else _config(config)
        if config is not None and values == [0, 0, 0, 0]:
            raise NotPlainError
        found += values
    return found


def _to_configs(values: Sequence[int] | None) -> Configs | None:
    if values is None:
        return None
    parts = [list(values[n : n + 4]) for n in (0, 4, 8)]
    return Configs(**{kind: _to_config(part) if any(part) else None for kind, part in zip(_KINDS, parts, strict=True)})
