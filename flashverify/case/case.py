"""The case: everything that determines one attention problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from flashverify.case.masks.mask import Mask
from flashverify.case.modifiers.logits import MODIFIERS, Logits
from flashverify.case.quantised.quantised import Quantised, check_quantised
from flashverify.case.require import require
from flashverify.case.sections import (
    DTYPES,
    EDIT_TENSORS,
    LAYOUTS,
    PLAIN_POISONS,
    POISONS,
    PRECISIONS,
    REGIMES,
    Edit,
    Grad,
    Storage,
    Values,
)
from flashverify.case.shared_kv import check_shared, shares
from flashverify.case.tensors import EDITABLE

__all__ = [
    "DTYPES",
    "EDIT_TENSORS",
    "LAYOUTS",
    "PLAIN_POISONS",
    "POISONS",
    "PRECISIONS",
    "REGIMES",
    "Case",
    "Edit",
    "Grad",
    "Logits",
    "Quantised",
    "Storage",
    "Values",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One attention problem: q `[batch, heads_q, seq_q, dim_qk]`, k `[batch, heads_kv, seq_k, dim_qk]`, v `[..., dim_v]`.

    Frozen and hashable; `flashverify.case.text` gives its one text form, and the same case is the same bits on every
    machine and device. Packed sequences lie one after the other in a batch of 1: seq_q and seq_k are the rows of the buffers.

    Args:
        batch: sequences; 1 where they are packed.
        heads_q: query heads, a multiple of heads_kv; query head h reads kv head h // (heads_q // heads_kv).
        heads_kv: heads of k and v.
        seq_q: rows of each sequence.
        seq_k: keys of each sequence.
        dim_qk: channels of q and k.
        dim_v: channels of v and O.
        dtype: of q, k, v, O, dO and the gradients.
        precision: how fp32 products are taken; only `ieee` for the 16-bit types.
        scale: of the logits, in natural units; None is 1 / sqrt(dim_qk).
        mask: which key each row sees.
        logits: what is done to the logits.
        dropout: probability that a weight is dropped.
        values: how the tensors are filled.
        storage: where they lie in memory.
        grad: the incoming gradients.
        quantised: how k and v are given as codes; None where they are not.
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
    quantised: Quantised | None = None
    launch: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for name in ("batch", "seq_q", "seq_k"):
            require(0 <= getattr(self, name) < 2**31, name, getattr(self, name), "0 <= size < 2**31")
        for name in ("heads_q", "heads_kv", "dim_qk", "dim_v"):
            require(1 <= getattr(self, name) < 2**31, name, getattr(self, name), "1 <= size < 2**31")
        require(self.heads_q % self.heads_kv == 0, "heads_q", self.heads_q, f"a multiple of heads_kv={self.heads_kv}")
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {DTYPES}")
        require(self.precision in PRECISIONS, "precision", self.precision, f"one of {PRECISIONS}")
        require(
            self.precision == "ieee" or self.dtype == "fp32", "precision", self.precision, "'ieee' unless dtype is fp32"
        )
        require(self.scale is None or math.isfinite(self.scale), "scale", self.scale, "None or a finite number")
        for modifier in MODIFIERS:
            if not modifier.section:
                modifier.check(modifier.of(self))
        for part, value in self.mask.given():
            part.check_case(value, self)
        check_shared(self)
        if self.quantised is not None:
            check_quantised(self.quantised, self)
        require(
            list(self.launch) == sorted(dict(self.launch).items()),
            "launch",
            self.launch,
            "sorted pairs, each name once",
        )
        named = all(name.isidentifier() for name, _ in self.launch)
        require(named, "launch", self.launch, "names are identifiers")
        sizes = self.editable if self.values.edits else {}
        for edit in self.values.edits:
            require(edit.tensor in sizes, "edit tensor", edit.tensor, f"one that the case has: {', '.join(sizes)}")
            inside = all(i < n for i, n in zip(edit.index, sizes[edit.tensor], strict=True))
            require(inside, "edit index", edit.index, f"inside {edit.tensor} of shape {sizes[edit.tensor]}")

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
    def shape_bias(self) -> tuple[int, int, int, int]:
        """`[batch or 1, heads_q or 1, seq_q, seq_k]` by the kind of bias."""
        batch = self.batch if self.logits.bias == "full" else 1
        return (batch, 1 if self.logits.bias == "shared" else self.heads_q, self.seq_q, self.seq_k)

    @property
    def editable(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors whose elements may be edited, by name; those of fewer than four axes end in axes of size 1.

        A V in the buffer of K is edited there.
        """
        shapes = {name: spec.shape(self) for name, spec in EDITABLE.items() if spec.shape is not None}
        if shares(self):
            del shapes["v"]
        return {name: (*shape, *(1,) * (4 - len(shape))) for name, shape in shapes.items() if shape is not None}

    @property
    def longest_q(self) -> int:
        """Rows of the longest sequence; seq_q where none are packed."""
        packed = self.mask.packed
        return self.seq_q if packed is None else max((rows for rows, _ in packed.lengths()), default=0)

    @property
    def rows_inside(self) -> tuple[int, ...] | None:
        """Query rows per batch entry that belong to the problem, the first ones; None where all do."""
        packed = self.mask.packed
        return self.mask.query_lengths if packed is None else (packed.cu_q[-1],)

    @property
    def keys_inside(self) -> tuple[int, ...] | None:
        """Keys per batch entry that belong to the problem, the first ones; None where all do."""
        packed = self.mask.packed
        return self.mask.key_lengths if packed is None else (packed.cu_k[-1],)

    @property
    def softmax_scale(self) -> float:
        """The scale in force."""
        return self.scale if self.scale is not None else 1.0 / math.sqrt(self.dim_qk)

    def __str__(self) -> str:
        from flashverify.case.text import format_case

        return format_case(self)
