"""Block-sparse patterns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flashverify.case.codec import flags, ints
from flashverify.case.masks.seeded import LIVE, SeededPart
from flashverify.case.tensor_spec import TensorSpec
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.part import Condition, Drawn, Source

__all__ = ["BLOCKS", "Blocks"]

_LEAST = 16
"""Rows and keys of a block that every kernel with blocks takes."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block-sparse pattern: one bool per block of `rows` x `keys` positions of the buffers, counted from their start.

    Args:
        rows: of a block.
        keys: of a block.
        live: in 256, the share of the live blocks, drawn by `seed`.
        seed: of the draw.
        butterfly: block (r, c) is live as well where the numbers r and c differ in at most one bit.
        each: a pattern of its own per batch and query head; otherwise one for all.
    """

    rows: int
    keys: int
    live: int
    seed: int
    butterfly: bool = False
    each: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1 or self.keys < 1 or not 0 <= self.live <= 256 or not 0 <= self.seed < 2**64:
            raise UsageError(f"{self} is not accepted: rows, keys >= 1, 0 <= live <= 256, 0 <= seed < 2**64")


def _live(case: Case) -> Any:
    from flashverify.case.masks.patterns import blocks_array

    return blocks_array(case)


class _Blocks(SeededPart):
    """A bool per block."""

    name = word = "blocks"
    reason = "keys of dead blocks"
    tensors = (
        TensorSpec(name="blocks", axes=("batch", "head_q", "block_row", "block_key"), dtype="bool", values=_live),
    )

    def parse(self, text: str) -> Blocks:
        """Rows, keys, live, seed, then flags."""
        rows, keys, live, seed, *rest = ints(text)
        return Blocks(rows, keys, live, seed, *flags(rest, 2))

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Pairs of live blocks."""
        from flashverify.case.masks.patterns import blocks_tensor

        live, blocks = blocks_tensor(case, device), case.mask.blocks
        assert live is not None
        assert blocks is not None
        return {"blocks": lambda pairs: pairs.of(live, blocks.rows, blocks.keys)}

    def draw(self, source: Source, drawn: Drawn) -> Blocks:
        """Of the block size that the case was drawn with."""
        rows, keys = drawn.block
        butterfly, each = source.one_in(4), source.one_in(3)
        live = 0 if butterfly else source.choice(LIVE)
        return Blocks(rows, keys, live, source.integer(0, 255), butterfly=butterfly, each=each)

    def simpler(self, value: Any) -> Iterator[Blocks]:
        """The plainest block and no butterfly, then as any pattern."""
        for names in (("rows", "keys"), ("rows",), ("keys",)):
            if all(getattr(value, name) > _LEAST for name in names):
                yield replace(value, **dict.fromkeys(names, _LEAST))
        if value.butterfly:
            yield replace(value, butterfly=False)
            yield replace(value, live=0, seed=0)
        yield from super().simpler(value)

    def plain(self, value: Any) -> Any:
        """Without the butterfly too."""
        return replace(super().plain(value), butterfly=False)


BLOCKS = _Blocks()
