"""What the key of a launch plan holds of tensors and options: equal keys only for calls that checks and launches cannot tell apart."""

from __future__ import annotations

import dataclasses
import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from flashverify_kernels.blocks import BlockMask
from flashverify_kernels.config import Configs, LaunchConfig
from flashverify_kernels.options import DecodeOptions, Options
from flashverify_kernels.packed import Packed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    _Reader = Callable[[Any, list[torch.Tensor]], Hashable]

ALIGNMENT = 16
"""Bytes that launches know of an address."""

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_properties = attrgetter("dtype", "shape", "device")
_fields = attrgetter(*(field.name for field in dataclasses.fields(LaunchConfig)))
_kernels = attrgetter(*(field.name for field in dataclasses.fields(Configs)))


class NoPlanError(Exception):
    """No plan is made for a call of this kind."""


def key_of_tensors(tensors: list[torch.Tensor], addresses: list[int]) -> Hashable:
    """All but contents and addresses; of these, whether they are aligned and which tensors share one.

    Raises:
        NoPlanError: an argument is not a plain tensor.
        RuntimeError: one has no strides or no address, such as a sparse one.
    """
    if not _PLAIN.issuperset(map(type, tensors)):
        raise NoPlanError
    addresses += map(torch.Tensor.data_ptr, tensors)
    return (
        tuple(map(_properties, tensors)),
        tuple(map(torch.Tensor.stride, tensors)),
        pattern(addresses),
    )


def pattern(addresses: Sequence[int]) -> Hashable:
    """What launches know of addresses: which are aligned and which are equal; None where all are aligned and differ."""
    if aligned(addresses) and len({*addresses}) == len(addresses):
        return None
    return tuple((p % ALIGNMENT, addresses.index(p)) for p in addresses)


def aligned(addresses: Sequence[int]) -> bool:
    """Whether every address is a multiple of `ALIGNMENT`."""
    return math.gcd(ALIGNMENT, *addresses) == ALIGNMENT


def key_of_options(options: Options | DecodeOptions, tensors: list[torch.Tensor]) -> Hashable:
    """The options that differ from their defaults, by name; their tensors are appended to `tensors`.

    Raises:
        NoPlanError: an option is of a kind without plans, or of a type that checks may refuse or take for another one.
    """
    readers = _READERS.get(type(options))
    if readers is None:
        raise NoPlanError
    found = []
    for name, value in vars(options).items():
        default, read = readers[name]
        if value is not default:
            found.append((name, read(value, tensors)))
    return tuple(found)


def _none(_value: Any, _tensors: list[torch.Tensor]) -> Hashable:
    raise NoPlanError


def _tensor(value: Any, tensors: list[torch.Tensor]) -> None:
    tensors.append(value)


def _slopes(value: Any, tensors: list[torch.Tensor]) -> bool:
    tensors.append(value)
    return getattr(value, "requires_grad", False)


def _number(value: Any, _tensors: list[torch.Tensor]) -> str:
    if type(value) is not float:
        raise NoPlanError
    return value.hex()  # -0.0 is not 0.0


def _exactly(kind: type) -> _Reader:
    def read(value: Any, _tensors: list[torch.Tensor]) -> Hashable:
        if type(value) is not kind:
            raise NoPlanError
        return value

    return read


def _window(value: Any, _tensors: list[torch.Tensor]) -> Hashable:
    if type(value) is not tuple or not all(x is None or type(x) is int for x in value):
        raise NoPlanError
    return value


def _packed(value: Any, tensors: list[torch.Tensor]) -> Hashable:
    if not (type(value) is Packed and type(value.max_q) is type(value.max_k) is int):
        raise NoPlanError
    tensors += (value.cu_q, value.cu_k)
    return value.max_q, value.max_k


def _blocks(value: Any, tensors: list[torch.Tensor]) -> Hashable:
    if not (type(value) is BlockMask and type(value.rows) is type(value.keys) is int):
        raise NoPlanError
    tensors += (value.along_keys, value.along_queries)
    return value.rows, value.keys


def _config(value: Any, tensors: list[torch.Tensor]) -> Hashable:
    if type(value) is Configs:
        return tuple(None if x is None else _config(x, tensors) for x in _kernels(value))
    if type(value) is not LaunchConfig:
        raise NoPlanError
    fields = _fields(value)
    return fields, tuple(map(type, fields))  # a configuration of 64.0 is not one of 64


_COMMON: dict[str, _Reader] = {
    "scale": _number,
    "softcap": _number,
    "causal": _exactly(str),
    "precision": _exactly(str),
    "layout": _exactly(str),
    "allow_interpreted_bf16": _exactly(bool),
    "window": _window,
    "config": _config,
    "query_lengths": _tensor,
    "key_lengths": _tensor,
    "alibi_slopes": _slopes,
    "bias": _tensor,
}
_READERS: dict[type, dict[str, tuple[object, _Reader]]] = {
    kind: {field.name: (field.default, readers.get(field.name, _none)) for field in dataclasses.fields(kind)}
    for kind, readers in (
        (Options, _COMMON | {"prefix_lengths": _tensor, "packed": _packed, "sink": _tensor, "blocks": _blocks}),
        (
            DecodeOptions,
            _COMMON | {"block_table": _tensor, "n_splits": _exactly(int)},
        ),  # torch computes the part of a sink
    )
}
"""The default of each option, and how others are read. Dropout has another seed with every call."""
