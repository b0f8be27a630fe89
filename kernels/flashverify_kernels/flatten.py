"""Options of attention and decode as the plain values of an operator, tensors first, and back.

One table for each says all there is to say of an option: the parameters of the operator that it becomes, how, and how to get it
back. The schema, `flatten` and `unflatten` follow from it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from flashverify_kernels.bitmap import Bitmap
from flashverify_kernels.blocks import BlockMask
from flashverify_kernels.dropout import Dropout
from flashverify_kernels.options import DecodeOptions, Options
from flashverify_kernels.packed import Packed
from flashverify_kernels.plain import (
    SEEDS,
    from_config,
    from_configs,
    from_window,
    number,
    required,
    signed,
    to_config,
    to_configs,
    to_window,
    whole,
)
from flashverify_kernels.relative import RelativeBias
from flashverify_kernels.tree import TreeMask


def parameter(schema: str, name: str) -> int:
    """The number of a parameter of `schema`."""
    return [parameter.split()[-1] for parameter in schema.split(", ")].index(name)


def _mask(mask: Any) -> tuple[Any, ...]:
    return (mask.bits, None) if isinstance(mask, TreeMask) else (None, required(mask, Bitmap).words)


def _dropout(dropout: Any) -> tuple[Any, ...]:
    required(dropout, Dropout)
    return float(dropout.p), signed(dropout.seed), dropout.offset


def _relative(relative: Any) -> tuple[Any, ...]:
    required(relative, RelativeBias)
    return required(relative.table, torch.Tensor), required(relative.distance_buckets, torch.Tensor)


def _packed(packed: Any) -> tuple[Any, ...]:
    required(packed, Packed)
    tables = (required(packed.cu_q, torch.Tensor), required(packed.cu_k, torch.Tensor))
    return *tables, [whole(packed.max_q), whole(packed.max_k)]


def _blocks(blocks: Any) -> tuple[Any, ...]:
    required(blocks, BlockMask)
    return blocks.along_keys, blocks.along_queries, [blocks.rows, blocks.keys]


class _Option(NamedTuple):
    """One option.

    Attributes:
        name: field of the options.
        columns: the parameters that it becomes, as a schema has them; all are absent where it is None.
        to: their values.
        back: the option of them.
        absent: their values where it is None; None where it must not be.
    """

    name: str
    columns: tuple[str, ...]
    to: Callable[[Any], tuple[Any, ...]]
    back: Callable[..., Any]
    absent: tuple[Any, ...] | None = (None,)


def _tensor(name: str) -> _Option:
    return _Option(name, (f"Tensor? {name}",), lambda x: (required(x, torch.Tensor),), _same)


def _same(value: Any) -> Any:
    return value


_SCALE = _Option("scale", ("float? scale",), lambda x: (number(x),), _same)
_CAUSAL = _Option("causal", ("str? causal",), lambda x: (required(x, str),), _same)
_WINDOW = _Option("window", ("SymInt[]? window",), lambda x: (from_window(x),), to_window)
_LAST = (
    _Option("precision", ("str precision",), lambda x: (required(x, str),), _same, None),
    _Option("layout", ("str layout",), lambda x: (required(x, str),), _same, None),
)
_BF16 = _Option("allow_interpreted_bf16", ("bool allow_interpreted_bf16",), lambda x: (bool(x),), _same, None)

_ATTENTION = (
    *map(_tensor, ("bias", "sink")),
    _Option(
        "relative_bias", ("Tensor? relative_table", "Tensor? distance_buckets"), _relative, RelativeBias, (None, None)
    ),
    *map(_tensor, ("alibi_slopes", "query_lengths", "key_lengths", "prefix_lengths")),
    _Option("tree", ("Tensor? tree",), lambda x: (required(x, TreeMask).bits,), TreeMask),
    _Option("bitmap", ("Tensor? bitmap",), lambda x: (required(x, Bitmap).words,), Bitmap),
    _SCALE,
    _CAUSAL,
    _WINDOW,
    _Option(
        "blocks",
        ("Tensor? live_along_keys", "Tensor? live_along_queries", "SymInt[]? block_size"),
        _blocks,
        lambda along_keys, along_queries, size: BlockMask(size[0], size[1], along_keys, along_queries),
        (None, None, None),
    ),
    _Option(
        "packed",
        ("Tensor? cu_q", "Tensor? cu_k", "SymInt[]? longest"),
        _packed,
        lambda cu_q, cu_k, longest: Packed(cu_q, cu_k, longest[0], longest[1]),
        (None, None, None),
    ),
    _Option("softcap", ("float? softcap",), lambda x: (number(x),), _same),
    _Option(
        "dropout",
        ("float? dropout", "SymInt seed", "SymInt offset"),
        _dropout,
        lambda p, seed, offset: Dropout(p, seed % SEEDS, offset),
        (None, 0, 0),
    ),
    *_LAST,
    _Option("config", ("int[]? config",), lambda x: (from_configs(x),), to_configs),
    _BF16,
)
"""The bias, the sinks and the table of a relative bias come first: they are differentiable."""

_DECODE = (
    *map(_tensor, ("query_lengths", "key_lengths", "block_table", "alibi_slopes", "bias", "sink")),
    _Option("softcap", ("float? softcap",), lambda x: (number(x),), _same),
    _Option(
        "tree",
        ("Tensor? tree", "Tensor? bitmap"),
        _mask,
        lambda bits, words: Bitmap(words) if bits is None else TreeMask(bits),
        (None, None),
    ),
    _SCALE,
    _CAUSAL,
    _WINDOW,
    _Option("n_splits", ("SymInt? n_splits",), lambda x: (whole(x),), _same),
    *_LAST,
    _Option("config", ("int[]? config",), lambda x: (from_config(x),), to_config),
    _BF16,
)


def _order(table: tuple[_Option, ...]) -> tuple[int, ...]:
    """The columns of a table in the order of the operator's parameters: tensors first."""
    columns = [column for option in table for column in option.columns]
    return tuple(sorted(range(len(columns)), key=lambda n: not columns[n].startswith("Tensor")))


def _schema(table: tuple[_Option, ...]) -> str:
    columns = [column for option in table for column in option.columns]
    return ", ".join(columns[n] for n in _order(table))


_ATTENTION_ORDER, _DECODE_ORDER = _order(_ATTENTION), _order(_DECODE)
ATTENTION_SCHEMA = _schema(_ATTENTION)
"""The parameters that the values of `flatten` are given to."""
DECODE_SCHEMA = _schema(_DECODE)
"""The parameters that the values of `flatten_decode` are given to."""
ATTENTION_TENSORS = ATTENTION_SCHEMA.count("Tensor? ")
"""Tensors among the values of `flatten`; the first three are differentiable."""


def _flat(table: tuple[_Option, ...], order: tuple[int, ...], options: Any) -> tuple[Any, ...]:
    columns: list[Any] = []
    for option in table:
        value = getattr(options, option.name)
        columns.extend(option.absent if value is None and option.absent is not None else option.to(value))
    return tuple([columns[n] for n in order])


def _fields(table: tuple[_Option, ...], order: tuple[int, ...], values: Sequence[Any]) -> dict[str, Any]:
    by_column = dict(zip(order, values, strict=True))
    found: dict[str, Any] = {}
    n = 0
    for option in table:
        columns = [by_column[n + k] for k in range(len(option.columns))]
        n += len(columns)
        absent = option.absent is not None and all(
            x is None for x, column in zip(columns, option.columns, strict=True) if "?" in column
        )
        found[option.name] = None if absent else option.back(*columns)
    return found


def flatten(options: Options) -> tuple[Any, ...]:
    """The values of the parameters `ATTENTION_SCHEMA`.

    Raises:
        NotPlainError: an option is not what it should be.
    """
    return _flat(_ATTENTION, _ATTENTION_ORDER, options)


def unflatten(values: Sequence[Any]) -> Options:
    """The options that `flatten` made `values` of."""
    return Options(**_fields(_ATTENTION, _ATTENTION_ORDER, values))


def flatten_decode(options: DecodeOptions) -> tuple[Any, ...]:
    """The values of the parameters `DECODE_SCHEMA`.

    Raises:
        NotPlainError: an option is not what it should be.
    """
    return _flat(_DECODE, _DECODE_ORDER, options)


def unflatten_decode(values: Sequence[Any]) -> DecodeOptions:
    """The options that `flatten_decode` made `values` of."""
    return DecodeOptions(**_fields(_DECODE, _DECODE_ORDER, values))
