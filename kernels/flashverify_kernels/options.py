"""The options of `attention`, `attention_varlen` and `decode`: their types, for callers and for the checks.

An option stands twice here, once for type checkers and editors (`...Options` as TypedDict, which the functions unpack) and once
with its default (`Options`, what the checks read); `described` shows both in the signature. What it means is said by the docstring
of the function.
"""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict, TypeVar, get_type_hints

import torch

from flashverify_kernels.bitmap import Bitmap
from flashverify_kernels.blocks import BlockMask
from flashverify_kernels.config import Configs, LaunchConfig
from flashverify_kernels.dropout import Dropout
from flashverify_kernels.packed import Packed
from flashverify_kernels.relative import RelativeBias
from flashverify_kernels.tree import TreeMask

Causal = Literal["top-left", "bottom-right"]
Layout = Literal["bhsd", "bshd"]
Precision = Literal["ieee", "tf32", "tf32x3"]
Window = tuple[int | None, int | None]

_F = TypeVar("_F", bound=Callable[..., Any])


class SharedOptions(TypedDict, total=False):
    """What every attention takes."""

    scale: float | None
    causal: Causal | None
    window: Window | None
    precision: Precision
    allow_interpreted_bf16: bool


class VarlenOptions(SharedOptions, total=False):
    """What `attention_varlen` takes."""

    prefix_lengths: torch.Tensor | None
    tree: TreeMask | None
    bitmap: Bitmap | None
    blocks: BlockMask | None
    softcap: float | None
    alibi_slopes: torch.Tensor | None
    sink: torch.Tensor | None
    bias: torch.Tensor | None
    relative_bias: RelativeBias | None
    dropout: Dropout | None
    config: Configs | None


class AttentionOptions(VarlenOptions, total=False):
    """What `attention` takes."""

    query_lengths: torch.Tensor | None
    key_lengths: torch.Tensor | None
    layout: Layout


class DecodingOptions(SharedOptions, total=False):
    """What `decode` takes."""

    query_lengths: torch.Tensor | None
    key_lengths: torch.Tensor | None
    block_table: torch.Tensor | None
    tree: TreeMask | Bitmap | None
    softcap: float | None
    alibi_slopes: torch.Tensor | None
    bias: torch.Tensor | None
    sink: torch.Tensor | None
    n_splits: int | None
    layout: Layout
    config: LaunchConfig | None


class _Quick:
    """A dataclass of options that is made quickly."""

    @classmethod
    def of(cls, given: Any) -> Self:
        """The options of a call whose names are checked: `cls(**given)` in a tenth of the time. The class holds the defaults."""
        if torch.compiler.is_compiling():  # torch's compiler follows a constructor alone
            return cls(**given)
        options = object.__new__(cls)
        options.__dict__.update(given)
        return options


@dataclass(frozen=True, eq=False, kw_only=True)
class Options(_Quick):
    """What an attention computes and how: the options of `attention`, and `packed` sequences."""

    scale: float | None = None
    causal: Causal | None = None
    window: Window | None = None
    query_lengths: torch.Tensor | None = None
    key_lengths: torch.Tensor | None = None
    prefix_lengths: torch.Tensor | None = None
    tree: TreeMask | None = None
    bitmap: Bitmap | None = None
    blocks: BlockMask | None = None
    packed: Packed | None = None
    softcap: float | None = None
    alibi_slopes: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    relative_bias: RelativeBias | None = None
    dropout: Dropout | None = None
    precision: Precision = "ieee"
    layout: Layout = "bhsd"
    config: Configs | None = None
    allow_interpreted_bf16: bool = False

    @property
    def whole(self) -> bool:
        """Whether every row of the tensors counts: no lengths and no packed sequences."""
        return self.packed is None and self.query_lengths is None and self.key_lengths is None

    def tables(self) -> list[torch.Tensor]:
        """The tensors that describe the mask and the logits, which must not change between forward and backward."""
        if not vars(self):
            return []
        found = [self.query_lengths, self.key_lengths, self.prefix_lengths, self.alibi_slopes, self.bias, self.sink]
        if self.relative_bias is not None:
            found += [self.relative_bias.table, self.relative_bias.distance_buckets]
        if self.tree is not None:
            found.append(self.tree.bits)
        if self.bitmap is not None:
            found.append(self.bitmap.words)
        if self.blocks is not None:
            found += [self.blocks.along_keys, self.blocks.along_queries]
        if self.packed is not None:
            found += [self.packed.cu_q, self.packed.cu_k]
        return [x for x in found if x is not None]


@dataclass(frozen=True, eq=False, kw_only=True)
class DecodeOptions(_Quick):
    """What a decoding computes and how: the options of `decode`."""

    scale: float | None = None
    causal: Causal | None = None
    window: Window | None = None
    query_lengths: torch.Tensor | None = None
    key_lengths: torch.Tensor | None = None
    block_table: torch.Tensor | None = None
    tree: TreeMask | Bitmap | None = None
    softcap: float | None = None
    alibi_slopes: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    n_splits: int | None = None
    precision: Precision = "ieee"
    layout: Layout = "bhsd"
    config: LaunchConfig | None = None
    allow_interpreted_bf16: bool = False


def described(accepted: type, defaults: type) -> Callable[[_F], _F]:
    """A decorator that shows the options of a function in its signature, where it takes `**options`.

    Args:
        accepted: TypedDict of the options.
        defaults: dataclass that has them all.
    """
    values = {field.name: field.default for field in dataclasses.fields(defaults)}  # in the order that is shown
    types = get_type_hints(accepted)
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=types[name])
        for name, value in values.items()
        if name in types
    ]

    def describe(function: _F) -> _F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        setattr(function, "__signature__", signature.replace(parameters=own + shown))  # noqa: B010  mypy knows no such attribute
        return function

    return describe


def check_names(function: str, options: Any, accepted: frozenset[str]) -> None:
    """Refuse an option that `function` does not take, as Python does.

    Raises:
        TypeError: there is one.
    """
    for name in options:
        if name not in accepted:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
