"""What a case is made of besides its shapes: values, storage, logits and gradients, each with the values it accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from flashverify.errors import UsageError

__all__ = [
    "DTYPES",
    "EDIT_TENSORS",
    "HUGE",
    "LAYOUTS",
    "POISONS",
    "PRECISIONS",
    "REGIMES",
    "Edit",
    "Grad",
    "Logits",
    "Storage",
    "Values",
    "require",
]

DTYPES = ("fp16", "bf16", "fp32")
PRECISIONS = ("ieee", "tf32", "tf32x3")
LAYOUTS = ("bhsd", "bshd")
POISONS = ("zero", "dirt", "max", "inf", "-inf", "nan")
EDIT_TENSORS = ("q", "k", "v", "do", "bias", "sink", "slopes")
_FINITE = ("bias", "sink", "slopes")
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
    "overflow",
)
"""From plain to wild: shrinking moves to the left."""


def require(condition: bool, name: str, value: object, accepted: str) -> None:
    """Raises a UsageError that names the axis, its value and what is accepted, unless the condition holds."""
    if not condition:
        raise UsageError(f"{name}={value!r} is not accepted: {accepted}")


@dataclass(frozen=True, slots=True)
class Edit:
    """One element overwritten after the regime filled its tensor: `tensor[index] = value`, rounded to the dtype.

    Sinks and the slopes of ALiBi are edited as `[Hq, 1, 1, 1]`, in fp32. They and the bias take finite values alone: what a non-finite
    one reaches is not specified.
    """

    tensor: str
    index: tuple[int, int, int, int]
    value: float

    def __post_init__(self) -> None:
        require(self.tensor in EDIT_TENSORS, "edit tensor", self.tensor, f"one of {EDIT_TENSORS}")
        finite = self.tensor not in _FINITE or math.isfinite(self.value)
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
    """How q, k, v and dO are filled: a regime and a seed, then edits of single elements."""

    regime: str = "normal"
    seed: int = 0
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        require(self.regime in REGIMES, "regime", self.regime, f"one of {REGIMES}")
        require(0 <= self.seed < 2**64, "seed", self.seed, "0 <= seed < 2**64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where the tensors lie.

    Args:
        layout: order of the axes in memory, outermost first.
        gap: unused elements between consecutive rows of the last axis but one; they hold the padding poison.
        offset: elements before the first one, which breaks pointer alignment when it is no multiple of 8.
        expand: k and v share one stored head (stride 0 over heads).
        padding: what the elements outside the declared lengths, the gaps and the guard bands of the inputs hold.
        page_size: keys per page of a paged k and v; None is contiguous.
        strided: slopes, sink and dlse are every second element of their buffers, padding between them.
    """

    layout: str = "bhsd"
    gap: int = 0
    offset: int = 0
    expand: bool = False
    padding: str = "zero"
    page_size: int | None = None
    strided: bool = False

    def __post_init__(self) -> None:
        require(self.layout in LAYOUTS, "layout", self.layout, f"one of {LAYOUTS}")
        require(0 <= self.gap <= 4096, "gap", self.gap, "0 <= gap <= 4096 elements")
        require(0 <= self.offset <= 4096, "offset", self.offset, "0 <= offset <= 4096 elements")
        require(self.padding in POISONS, "padding", self.padding, f"one of {POISONS}")
        require(self.page_size is None or self.page_size >= 1, "page_size", self.page_size, "None or >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logits:
    """Modifications of the logits between the scaled product and the softmax; all absent by default.

    Args:
        softcap: S becomes softcap * tanh(S / softcap), before anything is added.
        alibi: -slope * |i + shift - j| is added, with slope 2^(-8 (h + 1) / Hq) of query head h and the shift of the mask; `wild`
            slopes are of either sign and below 2^14 in magnitude, by seed.
        bias: an additive bias: `full` [B, Hq, Sq, Sk], `head` [1, Hq, Sq, Sk] or `shared` [1, 1, Sq, Sk].
        sink: one more column with V = 0 in every row that sees a key, a logit per query head.
    """

    softcap: float | None = None
    alibi: bool | Literal["wild"] = False
    bias: Literal["full", "head", "shared"] | None = None
    sink: bool = False

    def __post_init__(self) -> None:
        require(
            self.softcap is None or 0 < self.softcap < math.inf, "softcap", self.softcap, "None or a positive number"
        )
        require(self.alibi in (False, True, "wild"), "alibi", self.alibi, "False, True or 'wild'")
        require(self.bias in (None, "full", "head", "shared"), "bias", self.bias, "None, 'full', 'head' or 'shared'")

    def names(self) -> frozenset[str]:
        """Those that are present, as a subject declares them in `Supports.logits`."""
        present = {"softcap": self.softcap, "alibi": self.alibi, "bias": self.bias, "sink": self.sink}
        return frozenset(name for name, value in present.items() if value)


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
