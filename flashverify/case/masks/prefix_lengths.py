"""Prefixes that every row of a causal sequence sees, as of a prefix language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.masks.part import Condition, Drawn, LengthsPart, Role, Source
from flashverify.case.require import require
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask
    from flashverify.case.masks.pairs import Pairs

__all__ = ["PREFIX_LENGTHS", "in_prefix"]


class _PrefixLengths(LengthsPart):
    """Per sequence; under causal a row also sees the keys before this one."""

    name, word = "prefix_lengths", "prefix"
    role: Role = "extra"
    needs = ("causal",)
    excludes = ("tree",)
    opens = "causal"
    tensors = (
        TensorSpec(
            name="prefix_lengths", axes=("sequence",), dtype="int32", values=lambda case: case.mask.prefix_lengths
        ),
    )

    def full(self, seq_q: int, seq_k: int) -> int:
        """The keys of the buffer."""
        return seq_k

    def check(self, value: Any, mask: Mask) -> None:
        """Lengths are not negative, and no right side of a window cuts what they open."""
        super().check(value, mask)
        require(
            _is_open(mask.window), self.name, value, f"only with a window whose right side is None, got {mask.window}"
        )

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Keys of the prefix of the row's sequence."""
        lengths = case.mask.prefix_lengths or ()
        return {"prefix": lambda pairs: in_prefix(pairs, lengths)}

    def draw(self, source: Source, drawn: Drawn) -> Any:
        """As of any length, of packed sequences mostly no longer than the sequence; none beside a window that is bounded on its right."""
        if not _is_open(drawn.values.get("window")):
            return None
        found, packed = super().draw(source, drawn), drawn.values.get("packed")
        if packed is None or source.one_in(4):
            return found
        keys = (count for _, count in packed.lengths())
        return tuple(n if n <= count else source.size(0, count) for n, count in zip(found, keys, strict=True))

    def grow(self, piece: Any, rows: int, keys: int) -> int:
        """Longer by half of the keys, so that keys behind the prefix become more as well."""
        return int(piece) + keys // 2


def in_prefix(pairs: Pairs, lengths: tuple[int, ...]) -> torch.Tensor:
    """Whether each key is before the prefix length of the sequence of its row; behind the last sequence there is none."""
    table = pairs.key.new_tensor((*lengths, 0))
    return pairs.key < table[pairs.row_sequence]


def _is_open(window: tuple[int | None, int | None] | None) -> bool:
    return window is None or window[1] is None


PREFIX_LENGTHS = _PrefixLengths()
