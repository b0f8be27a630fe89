"""What a case is made of besides its shapes, its mask and its logits: values, storage and gradients, with the values that each accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashverify.case.require import require
from flashverify.case.shared_kv import KV
from flashverify.case.tensors import EDITABLE
from flashverify.formats import DTYPES

__all__ = [
    "DTYPES",
    "EDIT_TENSORS",
    "HUGE",
    "LAYOUTS",
    "PLAIN_POISONS",
    "POISONS",
    "PRECISIONS",
    "REGIMES",
    "Edit",
    "Grad",
    "Storage",
    "Values",
]

PRECISIONS = ("ieee", "tf32", "tf32x3")
LAYOUTS = ("bhsd", "bshd")
PLAIN_POISONS = ("zero", "dirt", "max", "inf", "-inf", "nan")
POISONS = (*PLAIN_POISONS, "mixed")
"""With `mixed` each head has one of the plain ones, in turn."""
EDIT_TENSORS = tuple(EDITABLE)
HUGE = 2.0**95
"""From this size on few kernels say anything about a slope, a sink, or a bias that is positive."""
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
    "descending",
    "spikes",
    "near-ties-1e4",
    "weight-ties",
    "weight-edges",
    "sentinels",
    "delta-cancels",
    "subnormal-o",
    "shifted",
    "few-keys",
    "overflow",
)
"""From plain to wild: shrinking moves to the left."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One element overwritten after the regime filled its tensor: `tensor[index] = value`, rounded to the dtype.

    A tensor of fewer axes is edited with axes of size 1 at its end: sinks and the slopes of ALiBi as `[Hq, 1, 1, 1]`. Whatever modifies
    the logits takes finite values alone: what a non-finite one reaches is not specified.

    Args:
        tensor: its name, one of `EDIT_TENSORS`.
        index: logical, `[B, H, S, D]`.
        value: also NaN and infinities.
    """

    tensor: str
    index: tuple[int, int, int, int]
    value: float

    def __post_init__(self) -> None:
        require(self.tensor in EDIT_TENSORS, "edit tensor", self.tensor, f"one of {EDIT_TENSORS}")
        finite = not EDITABLE[self.tensor].finite or math.isfinite(self.value)
        require(finite, f"edit of {self.tensor}", self.value, "a finite number")
        require(len(self.index) == 4 and min(self.index) >= 0, "edit index", self.index, "four integers >= 0")

    def __eq__(self, other: object) -> bool:  # NaN edits are equal to themselves
        return isinstance(other, Edit) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.tensor, self.index, float(self.value).hex())


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """How q, k, v and dO are filled: a regime and a seed, then edits of single elements.

    Args:
        regime: the kind of values, one of `REGIMES`; or several with commas between them, which the heads take in turn (`of_head`).
        seed: of the values, and of dropout: 64 bits.
        edits: single elements, overwritten in this order.
    """

    regime: str = "normal"
    seed: int = 0
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        for each in self.regimes:
            require(each in REGIMES, "regime", self.regime, f"one of {REGIMES}, or several with commas between them")
        require(0 <= self.seed < 2**64, "seed", self.seed, "0 <= seed < 2**64")

    @property
    def regimes(self) -> tuple[str, ...]:
        """The regimes that the heads take in turn; one where all have the same."""
        return tuple(self.regime.split(","))

    @property
    def mixed(self) -> bool:
        """Whether each head has a regime of its own."""
        return "," in self.regime

    def of_head(self, number: int) -> Values:
        """The values that a case of one head must have to hold the q, k, v and dO of a head of a mixed case, which adds its number to the seed.

        Args:
            number: of the stored head of k in its batch entry, batch entries one after the other.
        """
        regimes = self.regimes
        return Values(regime=regimes[number % len(regimes)], seed=(self.seed + number) % 2**64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where the tensors lie.

    Args:
        layout: order of the axes in memory, outermost first.
        gap: unused elements between consecutive rows of the last axis but one; they hold the padding poison.
        offset: elements before the first one, which breaks pointer alignment when it is no multiple of 8.
        expand: k and v share one stored head (stride 0 over heads).
        padding: what the elements outside the declared lengths, the gaps and the guard bands of the inputs hold; `mixed` is a poison for each
            head, in turn through the list from that of the seed.
        page_size: keys per page of a paged k and v; None is contiguous.
        kept_pages: pages before the window of every row keep their keys and stand in the table; otherwise they are freed: their entries are
            garbage.
        strided: slopes, sink and dlse are every second element of their buffers, padding between them.
        kv: `separate`, or `shared`: K and V lie in one buffer, V is the first dim_v channels of K, as in the latent cache of MLA. Such a case
            has no backward.
        transposed: of q, k, v and a bias the two innermost axes have changed places in memory, so that the last axis is not contiguous.
    """

    layout: str = "bhsd"
    gap: int = 0
    offset: int = 0
    expand: bool = False
    padding: str = "zero"
    page_size: int | None = None
    kept_pages: bool = False
    strided: bool = False
    transposed: bool = False
    kv: str = "separate"

    def __post_init__(self) -> None:
        require(self.layout in LAYOUTS, "layout", self.layout, f"one of {LAYOUTS}")
        require(0 <= self.gap <= 4096, "gap", self.gap, "0 <= gap <= 4096 elements")
        require(0 <= self.offset <= 4096, "offset", self.offset, "0 <= offset <= 4096 elements")
        require(self.padding in POISONS, "padding", self.padding, f"one of {POISONS}")
        require(self.kv in KV, "kv", self.kv, f"one of {KV}")
        accepted = "no where k and v come in pages, whose channels are contiguous"
        require(not self.transposed or self.page_size is None, "transposed", "yes", accepted)
        require(self.page_size is None or self.page_size >= 1, "page_size", self.page_size, "None or >= 1")


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
        require(self.do in accepted, "do", self.do, f"one of {accepted}")
