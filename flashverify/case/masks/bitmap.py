"""Bitmaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.case.codec import flags, ints
from flashverify.case.masks.seeded import LIVE, SeededPart
from flashverify.case.tensor_spec import TensorSpec
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.part import Condition, Drawn, Source

__all__ = ["BITMAP", "Bitmap"]


@dataclass(frozen=True, slots=True)
class Bitmap:
    """Any mask: one bool per (row, key) of the buffers.

    Args:
        live: in 256, the share of the visible pairs, drawn by `seed`.
        seed: of the draw.
        each: a pattern of its own per batch and query head; otherwise one for all.
    """

    live: int
    seed: int
    each: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.live <= 256 or not 0 <= self.seed < 2**64:
            raise UsageError(f"{self} is not accepted: 0 <= live <= 256, 0 <= seed < 2**64")


def _bits(case: Case) -> Any:
    from flashverify.case.masks.patterns import bitmap_array

    return bitmap_array(case)


class _Bitmap(SeededPart):
    """A bool per pair."""

    name = word = "bitmap"
    reason = "keys whose bit is not set"
    tensors = (TensorSpec(name="bitmap", axes=("batch", "head_q", "row", "key"), dtype="bool", values=_bits),)

    def parse(self, text: str) -> Bitmap:
        """Live, seed, then a flag."""
        live, seed, *rest = ints(text)
        return Bitmap(live, seed, *flags(rest, 1))

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Pairs whose bit is set."""
        from flashverify.case.masks.patterns import bitmap_tensor

        bits = bitmap_tensor(case, device)
        assert bits is not None
        return {"bitmap": lambda pairs: pairs.of(bits)}

    def draw(self, source: Source, drawn: Drawn) -> Bitmap:
        """Any share of live pairs."""
        return Bitmap(source.choice(LIVE), source.integer(0, 255), each=source.one_in(3))


BITMAP = _Bitmap()
