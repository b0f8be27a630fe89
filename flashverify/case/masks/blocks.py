"""Block-sparse patterns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flashverify.case.codec import flags, ints
from flashverify.case.masks.part import down
from flashverify.case.masks.seeded import LIVE, SeededPart
from flashverify.case.tensor_spec import TensorSpec
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.part import Condition, Drawn, Source

__all__ = ["BLOCKS", "Blocks"]

_FIELDS = 3
"""Words behind the seed where all of them stand."""
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
        sliding: block (r, c) is live as well where c differs by less than this from the block of keys that holds position `r * rows`: a
            sliding window of blocks. 0 is none.
    """

    rows: int
    keys: int
    live: int
    seed: int
    butterfly: bool = False
    each: bool = False
    sliding: int = 0

    def __post_init__(self) -> None:
        accepted = "rows, keys >= 1, 0 <= live <= 256, 0 <= seed < 2**64, 0 <= sliding < 2**31"
        sizes = self.rows >= 1 and self.keys >= 1 and 0 <= self.sliding < 2**31
        if not sizes or not 0 <= self.live <= 256 or not 0 <= self.seed < 2**64:
            raise UsageError(f"{self} is not accepted: {accepted}")


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
        """Rows, keys, live, seed, then two flags and the width of a sliding window."""
        rows, keys, live, seed, *rest = ints(text)
        sliding = rest.pop() if len(rest) == _FIELDS else 0
        butterfly, each, *_ = (*flags(rest, 2), False, False)
        return Blocks(rows, keys, live, seed, butterfly=butterfly, each=each, sliding=sliding)

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
        kind, each = source.choice(("random", "random", "butterfly", "sliding", "random")), source.one_in(3)
        live = {"random": LIVE, "butterfly": (0,), "sliding": (0, 0, 16)}[kind]
        return Blocks(
            rows,
            keys,
            source.choice(live),
            source.integer(0, 255),
            butterfly=kind == "butterfly",
            each=each,
            sliding=source.integer(1, 3) if kind == "sliding" else 0,
        )

    def simpler(self, value: Any) -> Iterator[Blocks]:
        """The plainest block, no butterfly and no sliding window, then as any pattern."""
        for names in (("rows", "keys"), ("rows",), ("keys",)):
            if all(getattr(value, name) > _LEAST for name in names):
                yield replace(value, **dict.fromkeys(names, _LEAST))
        if value.butterfly:
            yield replace(value, butterfly=False)
            yield replace(value, live=0, seed=0)
        if value.sliding:
            yield replace(value, sliding=0)
            yield replace(value, live=0, seed=0, each=False)
            yield from (replace(value, sliding=width) for width in down(value.sliding, 1))
        yield from super().simpler(value)

    def plain(self, value: Any) -> Any:
        """Without the butterfly and the sliding window too."""
        return replace(super().plain(value), butterfly=False, sliding=0)


BLOCKS = _Blocks()
