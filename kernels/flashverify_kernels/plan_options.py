"""What the key of a launch plan holds of the options."""

from typing import Any

import torch

from flashverify_kernels.config import Configs
from flashverify_kernels.options import Options
from flashverify_kernels.packed import Packed

Tensors = tuple[torch.Tensor | None, ...]

_NONE = type(None)
_TEXTS = (_NONE, str)
_NUMBERS = (_NONE, float)


def tables_of(options: Options) -> Tensors | None:
    """The tensors of the options; None where an option is of a kind, or a type, that no plan is made for."""
    packed, window = options.packed, options.window
    if (
        options.dropout is not None  # of another seed with every call
        or options.relative_bias is not None
        or options.tree is not None
        or options.bitmap is not None
        or options.blocks is not None
        or type(options.scale) not in _NUMBERS
        or type(options.softcap) not in _NUMBERS
        or type(options.causal) not in _TEXTS
        or type(options.precision) is not str
        or type(options.layout) is not str
        or type(options.config) not in (_NONE, Configs)
        or (window is not None and not (type(window) is tuple and all(type(x) in (_NONE, int) for x in window)))
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


def values_of(options: Options) -> tuple[Any, ...]:
    """The options that are no tensors; -0.0 is not 0.0, and a configuration of 64.0 is not one of 64."""
    packed, config = options.packed, options.config
    return (
        None if options.scale is None else options.scale.hex(),
        None if options.softcap is None else options.softcap.hex(),
        options.causal,
        options.window,
        options.precision,
        options.layout,
        None if packed is None else (packed.max_q, packed.max_k),
        None if config is None else repr(config),
    )
