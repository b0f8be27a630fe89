"""What the key of a launch plan holds of the options."""

from typing import Any

import torch

from flashverify_kernels.config import Configs, LaunchConfig
from flashverify_kernels.options import DecodeOptions, Options
from flashverify_kernels.packed import Packed

Tensors = tuple[torch.Tensor | None, ...]

_NONE = type(None)
_TEXTS = (_NONE, str)
_NUMBERS = (_NONE, float)


def tables_of(options: Options | DecodeOptions) -> Tensors | None:
    """The tensors of the options; None where an option is of a kind, or a type, that no plan is made for."""
    if isinstance(options, DecodeOptions):
        return _tables_of_decode(options)
    packed = options.packed
    if (
        options.dropout is not None  # of another seed with every call
        or options.relative_bias is not None
        or options.tree is not None
        or options.bitmap is not None
        or options.blocks is not None
        or _unusual(options)
        or type(options.config) not in (_NONE, Configs)
        or (packed is not None and not (type(packed) is Packed and type(packed.max_q) is type(packed.max_k) is int))
    ):
        return None
    return (
        options.query_lengths,
        options.key_lengths,
        options.prefix_lengths,
        options.alibi_slopes,
        options.bias,
        options.sink,
        None if packed is None else packed.cu_q,
        None if packed is None else packed.cu_k,
    )


def _tables_of_decode(options: DecodeOptions) -> Tensors | None:
    if (
        options.tree is not None
        or options.sink is not None  # torch computes its part
        or _unusual(options)
        or type(options.config) not in (_NONE, LaunchConfig)
        or type(options.n_splits) not in (_NONE, int)
    ):
        return None
    return (options.query_lengths, options.key_lengths, options.block_table, options.alibi_slopes, options.bias)


def _unusual(options: Options | DecodeOptions) -> bool:
    """Whether checks may refuse an option, or take it for another value that is equal to it."""
    window = options.window
    return (
        getattr(options.alibi_slopes, "requires_grad", False)
        or type(options.scale) not in _NUMBERS
        or type(options.softcap) not in _NUMBERS
        or type(options.causal) not in _TEXTS
        or type(options.precision) is not str
        or type(options.layout) is not str
        or (window is not None and not (type(window) is tuple and all(type(x) in (_NONE, int) for x in window)))
    )


def values_of(options: Options | DecodeOptions) -> tuple[Any, ...]:
    """The options that are no tensors; -0.0 is not 0.0, and a configuration of 64.0 is not one of 64."""
    config = options.config
    packed = None if isinstance(options, DecodeOptions) else options.packed
    return (
        None if options.scale is None else options.scale.hex(),
        None if options.softcap is None else options.softcap.hex(),
        options.causal,
        options.window,
        options.precision,
        options.layout,
        options.n_splits
        if isinstance(options, DecodeOptions)
        else None
        if packed is None
        else (packed.max_q, packed.max_k),
        None if config is None else repr(config),
    )
