"""The case: everything that determines one attention problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from flashverify.case.mask import Mask
from flashverify.errors import UsageError

__all__ = [
    "DTYPES",
    "EDIT_TENSORS",
    "LAYOUTS",
    "POISONS",
    "PRECISIONS",
    "REGIMES",
    "Case",
    "Edit",
    "Grad",
    "Logits",
    "Storage",
    "Values",
]

DTYPES = ("fp16", "bf16", "fp32")
PRECISIONS = ("ieee", "tf32", "tf32x3")
LAYOUTS = ("bhsd", "bshd")
POISONS = ("zero", "dirt", "max", "inf", "-inf", "nan")
EDIT_TENSORS = ("q", "k", "v", "do")
REGIMES = (
    "zeros",
    "integers",
    "normal",
    "tiny",
    "subnormal",
    "large",
    "q-zero",
    "v-constant",
    "v-is-k",
    "v-positive",
    "v-cancelling",
    "one-hot",
    "duplicate-keys",
    "ties",
    "near-ties",
    "ascending",
    "negative",
    "outlier",
    "logits-1e2",
    "logits-1e3",
    "logits-1e4",
    "logits-1e5",
    "overflow",
)
"""From plain to wild: shrinking moves to the left."""


def _require(condition: bool, name: str, value: object, accepted: str) -> None:
    if not condition:
        raise UsageError(f"{name}={value!r} is not accepted: {accepted}")


@dataclass(frozen=True, slots=True)
class Edit:
    """One element overwritten after the regime filled its tensor: `tensor[index] = value`, rounded to the dtype."""

    tensor: str
    index: tuple[int, int, int, int]
    value: float

    def __post_init__(self) -> None:
        _require(self.tensor in EDIT_TENSORS, "edit tensor", self.tensor, f"one of {EDIT_TENSORS}")
        _require(len(self.index) == 4 and min(self.index) >= 0, "edit index", self.index, "four integers >= 0")

    def __eq__(self, other: object) -> bool:  # NaN edits are equal to themselves
        return isinstance(other, Edit) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.tensor, self.index, float(self.value).hex())


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """How q, k, v and dO are filled: a regime and a seed, then edits of single elements."""

    regime: str = "normal"
    seed: int = 0
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        _require(self.regime in REGIMES, "regime", self.regime, f"one of {REGIMES}")
        _require(0 <= self.seed < 2**64, "seed", self.seed, "0 <= seed < 2**64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where the tensors lie.

    Args:
        layout: order of the axes in memory, outermost first.
        gap: unused elements between consecutive rows of the last axis but one; they hold the padding poison.
        offset: elements before the first one, which breaks pointer alignment when it is no multiple of 8.
        expand: k and v share one stored head (stride 0 over heads).
        padding: what the elements outside the declared lengths, the gaps and the guard bands of the inputs hold.
        page_size: keys per page of a paged cache; None is contiguous.
    """

    layout: str = "bhsd"
    gap: int = 0
    offset: int = 0
    expand: bool = False
    padding: str = "zero"
    page_size: int | None = None

    def __post_init__(self) -> None:
        _require(self.layout in LAYOUTS, "layout", self.layout, f"one of {LAYOUTS}")
        _require(0 <= self.gap <= 4096, "gap", self.gap, "0 <= gap <= 4096 elements")
        _require(0 <= self.offset <= 4096, "offset", self.offset, "0 <= offset <= 4096 elements")
        _require(self.padding in POISONS, "padding", self.padding, f"one of {POISONS}")
        _require(self.page_size is None or self.page_size >= 1, "page_size", self.page_size, "None or >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logits:
    """Modifications of the logits between the scaled product and the softmax; all absent by default.

    Args:
        softcap: S becomes softcap * tanh(S / softcap).
        alibi: a slope per head, the standard geometric ones.
        bias: an additive bias: `full` [B, Hq, Sq, Sk], `head` [1, Hq, Sq, Sk] or `shared` [1, 1, Sq, Sk].
        sink: one more column with V = 0, a logit per head.
    """

    softcap: float | None = None
    alibi: bool = False
    bias: Literal["full", "head", "shared"] | None = None
    sink: bool = False

    def __post_init__(self) -> None:
        _require(
            self.softcap is None or 0 < self.softcap < math.inf, "softcap", self.softcap, "None or a positive number"
        )
        _require(self.bias in (None, "full", "head", "shared"), "bias", self.bias, "None, 'full', 'head' or 'shared'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grad:
    """The incoming gradients.

    Args:
        do: `dense` (filled by the regime), `expanded` (one value, stride 0: what `.sum().backward()` sends),
            `transposed` (last axis not contiguous) or `zero`.
        dlse: whether a gradient arrives through LSE too.
        backward: False judges the forward alone.
    """

    do: str = "dense"
    dlse: bool = False
    backward: bool = True

    def __post_init__(self) -> None:
        accepted = ("dense", "expanded", "transposed", "zero")
        _require(self.do in accepted, "do", self.do, f"one of {accepted}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One attention problem: q `[batch, heads_q, seq_q, dim_qk]`, k `[batch, heads_kv, seq_k, dim_qk]`, v `[..., dim_v]`.

    Frozen and hashable; `flashverify.case.text` gives its one text form, and the same case is the same bits on every
    machine and device.

    Args:
        dtype: of q, k, v, O, dO and the gradients.
        precision: how fp32 products are taken; only `ieee` for the 16-bit types.
        scale: of the logits, in natural units; None is 1 / sqrt(dim_qk).
        dropout: probability that a weight is dropped.
        launch: launch parameters by name (block sizes, warps, stages, splits), checked by the subject.

    Raises:
        UsageError: an axis is out of its range, or two axes contradict each other.
    """

    batch: int = 1
    heads_q: int = 1
    heads_kv: int = 1
    seq_q: int = 1
    seq_k: int = 1
    dim_qk: int = 16
    dim_v: int = 16
    dtype: str = "fp16"
    precision: str = "ieee"
    scale: float | None = None
    mask: Mask = field(default_factory=Mask)
    logits: Logits = field(default_factory=Logits)
    dropout: float = 0.0
    values: Values = field(default_factory=Values)
    storage: Storage = field(default_factory=Storage)
    grad: Grad = field(default_factory=Grad)
    launch: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for name in ("batch", "seq_q", "seq_k"):
            _require(0 <= getattr(self, name) < 2**31, name, getattr(self, name), "0 <= size < 2**31")
        for name in ("heads_q", "heads_kv", "dim_qk", "dim_v"):
            _require(1 <= getattr(self, name) < 2**31, name, getattr(self, name), "1 <= size < 2**31")
        _require(self.heads_q % self.heads_kv == 0, "heads_q", self.heads_q, f"a multiple of heads_kv={self.heads_kv}")
        _require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {DTYPES}")
        _require(self.precision in PRECISIONS, "precision", self.precision, f"one of {PRECISIONS}")
        _require(
            self.precision == "ieee" or self.dtype == "fp32", "precision", self.precision, "'ieee' unless dtype is fp32"
        )
        _require(self.scale is None or math.isfinite(self.scale), "scale", self.scale, "None or a finite number")
        _require(0 <= self.dropout < 1, "dropout", self.dropout, "0 <= dropout < 1")
        self._check_mask()
        _require(
            list(self.launch) == sorted(dict(self.launch).items()),
            "launch",
            self.launch,
            "sorted pairs, each name once",
        )
        named = all(name.isidentifier() for name, _ in self.launch)
        _require(named, "launch", self.launch, "names are identifiers")
        sizes = {"q": self.shape_q, "k": self.shape_k, "v": self.shape_v, "do": self.shape_o}
        for edit in self.values.edits:
            inside = all(i < n for i, n in zip(edit.index, sizes[edit.tensor], strict=True))
            _require(inside, "edit index", edit.index, f"inside {edit.tensor} of shape {sizes[edit.tensor]}")

    def _check_mask(self) -> None:
        for name, limit in (("key_lengths", self.seq_k), ("query_lengths", self.seq_q)):
            lengths = getattr(self.mask, name)
            if lengths is not None:
                _require(len(lengths) == self.batch, name, lengths, f"one length per sequence, batch={self.batch}")
                _require(max(lengths, default=0) <= limit, name, lengths, f"lengths <= {limit}")
        if self.mask.tree is not None:
            _require(
                len(self.mask.tree) == self.seq_q, "tree", self.mask.tree, f"one parent per query, seq_q={self.seq_q}"
            )
            _require(self.seq_k >= self.seq_q, "seq_k", self.seq_k, f"at least seq_q={self.seq_q} under a tree mask")

    @property
    def shape_q(self) -> tuple[int, int, int, int]:
        """`[batch, heads_q, seq_q, dim_qk]`."""
        return (self.batch, self.heads_q, self.seq_q, self.dim_qk)

    @property
    def shape_k(self) -> tuple[int, int, int, int]:
        """`[batch, heads_kv, seq_k, dim_qk]`."""
        return (self.batch, self.heads_kv, self.seq_k, self.dim_qk)

    @property
    def shape_v(self) -> tuple[int, int, int, int]:
        """`[batch, heads_kv, seq_k, dim_v]`."""
        return (self.batch, self.heads_kv, self.seq_k, self.dim_v)

    @property
    def shape_o(self) -> tuple[int, int, int, int]:
        """`[batch, heads_q, seq_q, dim_v]`."""
        return (self.batch, self.heads_q, self.seq_q, self.dim_v)

    @property
    def softmax_scale(self) -> float:
        """The scale in force."""
        return self.scale if self.scale is not None else 1.0 / math.sqrt(self.dim_qk)

    def __str__(self) -> str:
        from flashverify.case.text import format_case

        return format_case(self)
