"""How K and V of a case are quantised, and q where it comes in codes too: the codes, what shares a scale, and what the scales are like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.case.quantised.codes import CODES
from flashverify.case.require import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = [
    "LEAST_BLOCK",
    "SCALES",
    "SCALE_KINDS",
    "Quantised",
    "check_quantised",
    "format_quantised",
    "parse_quantised",
    "simpler_quantised",
]

SCALES = ("tensor", "head", "token", "block")
"""What shares one scale, from all to least: everything, a head of a sequence, a key of a head, or `block` neighbouring keys of a head."""
SCALE_KINDS = ("fitted", "power", "varied", "coarse", "saturated", "zero", "subnormal", "raw", "tails")
"""What the scales are like, from plain to wild (docs/quantised.md)."""
LEAST_BLOCK = 1
_DEFAULT_BLOCK = 16
_FLAGS = ("zeros", "q")
"""What may stand behind codes, scales and kind, in this order: the fields that are True."""
_FIELDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """K and V as codes: a value is `scale * (code - zero)`.

    Args:
        codes: of K and V: `e4m3`, `e5m2`, `int8`, `int4`.
        scales: what shares a scale, one of `SCALES`.
        block: keys of a block, where blocks of keys share one.
        kind: of the scales, one of `SCALE_KINDS`.
        zeros: each scale of K and V has a zero point; integers alone.
        q: q comes in codes of the same format as well, with scales shared as those of K are, by rows in place of keys, without zero points;
            not of `int4`.
    """

    codes: str = "e4m3"
    scales: str = "tensor"
    block: int = _DEFAULT_BLOCK
    kind: str = "fitted"
    zeros: bool = False
    q: bool = False

    def __post_init__(self) -> None:
        require(self.codes in CODES, "codes", self.codes, f"one of {', '.join(CODES)}")
        require(self.scales in SCALES, "scales", self.scales, f"one of {', '.join(SCALES)}")
        require(self.kind in SCALE_KINDS, "kind", self.kind, f"one of {', '.join(SCALE_KINDS)}")
        require(self.block >= LEAST_BLOCK, "block", self.block, f"an integer >= {LEAST_BLOCK}")
        same = self.scales == "block" or self.block == _DEFAULT_BLOCK
        require(same, "block", self.block, f"{_DEFAULT_BLOCK} where scales={self.scales}")
        require(not (self.zeros and CODES[self.codes].is_float), "zeros", self.zeros, f"False with codes={self.codes}")
        require(not (self.q and CODES[self.codes].per_byte > 1), "q", self.q, f"False with codes={self.codes}")

    def keys_per_scale(self, length: int) -> int:
        """Neighbouring keys of a head, or rows, that share a scale, out of as many as there are."""
        return {"token": 1, "block": self.block}.get(self.scales, max(length, 1))

    @property
    def operands(self) -> tuple[str, ...]:
        """What comes in codes."""
        return ("q", "k", "v") if self.q else ("k", "v")

    @property
    def scales_in_pages(self) -> bool:
        """Whether the scales of a paged cache lie in its pages: each serves keys of one page."""
        return self.scales in ("token", "block")


def format_quantised(value: Quantised | None) -> str:
    """`codes/scales/kind`, with the keys of a block behind `block`, then `/zeros` where there are zero points and `/q` where q is in codes."""
    assert value is not None
    size = str(value.block) if value.scales == "block" else ""
    return "/".join([value.codes, value.scales + size, value.kind, *(flag for flag in _FLAGS if getattr(value, flag))])


def parse_quantised(text: str) -> Quantised:
    """The inverse of `format_quantised`; raises a ValueError or UsageError."""
    parts = text.split("/")
    given = parts[_FIELDS:]
    if len(parts) < _FIELDS or given != [flag for flag in _FLAGS if flag in given]:
        raise ValueError("codes/scales/kind, then /zeros where there are zero points, then /q where q is in codes")
    codes, scales, kind = parts[:_FIELDS]
    flags = {flag: flag in given for flag in _FLAGS}
    if scales.startswith("block"):
        return Quantised(codes=codes, scales="block", block=int(scales.removeprefix("block")), kind=kind, **flags)
    return Quantised(codes=codes, scales=scales, kind=kind, **flags)


def check_quantised(value: Quantised, case: Case) -> None:
    """Refuses what does not fit the case, with a UsageError."""
    name, text, storage = "quantised", format_quantised(value), case.storage
    require(not case.grad.backward, name, text, "with backward=no: codes have no gradients")
    require(case.mask.packed is None, name, text, "without packed sequences")
    whole = storage.page_size is None or value.scales != "block" or storage.page_size % value.block == 0
    require(whole, name, text, f"with a page_size that is a multiple of {value.block}, not {storage.page_size}")
    require(not storage.expand, name, text, "with expand=no")
    require(not storage.transposed, name, text, "with transposed=no")
    even = case.dim_qk % CODES[value.codes].per_byte == 0 == case.dim_v % CODES[value.codes].per_byte
    require(even, name, text, "with even head dims: a byte holds two channels")


def simpler_quantised(value: Quantised) -> Iterator[Quantised]:
    """Simpler ones, boldest first; they stay quantised."""
    if value.kind != "fitted":
        yield replace(value, kind="fitted")
    if value.zeros:
        yield replace(value, zeros=False)
    if value.q:
        yield replace(value, q=False)
    for scales in SCALES[: SCALES.index(value.scales)]:
        yield replace(value, scales=scales, block=_DEFAULT_BLOCK)
    for size in (1, 2, 4, 8, 16, 32) if value.scales == "block" else ():
        if size < value.block:
            yield replace(value, block=size)
    if value.codes != "int8":
        yield replace(value, codes="int8")
