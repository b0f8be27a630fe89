"""What a part of the mask consists of, so that one file adds one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from flashverify.case.codec import ints, ints_text
from flashverify.case.require import require

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask
    from flashverify.case.masks.pairs import Pairs
    from flashverify.case.supports import Supports
    from flashverify.case.tensor_spec import TensorSpec

__all__ = ["Condition", "Drawn", "LengthsPart", "MaskPart", "Role", "Source", "down"]

Condition = Callable[["Pairs"], "torch.Tensor"]
"""Maps pairs to a bool tensor that broadcasts with them: true where the pair may be seen."""

Role = Literal["order", "band", "lengths", "extra", "alignment"]
"""How a part is combined in random cases: an order of the positions (one of them at most), a band around a row's position, declared
lengths, an extra that stands with any of them, or the alignment of another part, which a subject declares beside its masks."""


class Source(Protocol):
    """Where random choices come from; plain choices first, so that shrinking ends at them."""

    def choice(self, values: Sequence[Any]) -> Any:
        """One of `values`."""

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""

    def integers(self, low: int, high: int, *, least: int, most: int) -> list[int]:
        """From `least` to `most` integers."""

    def size(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, as often as not the edge of a tile."""

    def flag(self) -> bool:
        """True as often as false."""

    def one_in(self, n: int) -> bool:
        """True about once in `n` draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What a part is drawn for.

    Attributes:
        supports: what the subject declares.
        parts: names of all parts that the mask gets.
        sequences: number of sequences, packed or of the batch.
        seq_q: rows of the buffers.
        seq_k: keys of the buffers.
        block: rows and keys of a block.
        values: the parts before this one in the registry, by name.
    """

    supports: Supports
    parts: frozenset[str]
    sequences: int
    seq_q: int
    seq_k: int
    block: tuple[int, int]
    values: dict[str, Any]


class MaskPart:
    """One part of the mask. A subclass says what differs from these defaults; the value of an absent part is None.

    Attributes:
        name: of the field of `Mask`, as a subject declares it in `Supports.masks`.
        word: its key in the text form of a case.
        role: how random cases combine it with others.
        reason: why it hides pairs, in words after "masks"; empty for a part that hides none.
        extent: whether it says which rows and keys there are. Such conditions hold for every case, whether or not it declares them,
            and come first where one pair has several reasons.
        needs: parts that it cannot be without.
        excludes: parts that it cannot stand with.
        opens: the condition that its own ones widen: a pair is seen where either holds. Empty for a part that hides pairs.
        seeded: whether its value is a pattern with `live` and `seed`.
        tensors: of the problem.
    """

    name: str
    word: str
    role: Role
    reason: str = ""
    extent: bool = False
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    opens: str = ""
    seeded: bool = False
    tensors: tuple[TensorSpec, ...] = ()

    def check(self, value: Any, mask: Mask) -> None:
        """Refuses a value that no case can have, or that contradicts the other parts, with a UsageError."""

    def check_case(self, value: Any, case: Case) -> None:
        """Refuses a value that does not fit the shape of the case, with a UsageError."""

    def parse(self, text: str) -> Any:
        """The value that the text names; raises a ValueError, TypeError or UsageError."""
        raise NotImplementedError

    def format(self, value: Any) -> str:
        """The text of a value; `parse` gives it back."""
        raise NotImplementedError

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """What a pair must fulfil, by name. Called where the case has the part, and for an `extent` always."""
        raise NotImplementedError

    def draw(self, source: Source, drawn: Drawn) -> Any:
        """A random value."""
        raise NotImplementedError

    def simpler(self, value: Any) -> Iterator[Any]:
        """Simpler values, boldest first."""
        yield from ()

    def per_sequence(self, value: Any, mask: Mask) -> list[Any] | None:
        """The value as a list with an entry for each sequence, or None where all sequences share it."""
        return None

    def cut(self, piece: Any, rows: int, keys: int) -> Any:
        """An entry of `per_sequence`, or the shared value, for a sequence of `rows` rows and `keys` keys."""
        return piece

    def join(self, pieces: Iterable[Any], *, packed: bool) -> Any:
        """The value of these entries of `per_sequence`, in a mask of packed sequences or of others."""
        raise NotImplementedError

    def grow(self, piece: Any, rows: int, keys: int) -> Any:
        """An entry of `per_sequence`, or the shared value, for a sequence with `rows` rows and `keys` keys more."""
        return piece

    def another(self, piece: Any, number: int) -> Any:
        """An entry of `per_sequence` like `piece`, for the `number`-th sequence after it."""
        return piece


class LengthsPart(MaskPart):
    """A part that is one length >= 0 per sequence."""

    def full(self, seq_q: int, seq_k: int) -> int:
        """The largest length."""
        raise NotImplementedError

    def check(self, value: Any, mask: Mask) -> None:
        """Lengths are not negative; packed sequences may have their own."""
        require(all(length >= 0 for length in value), self.name, value, "lengths are >= 0")
        apart = mask.packed is not None and "packed" in self.excludes
        require(not apart, self.name, value, "packed sequences have their own lengths")

    def check_case(self, value: Any, case: Case) -> None:
        """One length per sequence, none beyond the buffers."""
        packed = case.mask.packed
        count = case.batch if packed is None else len(packed.lengths())
        limit = self.full(case.seq_q, case.seq_k)
        named = f"batch={case.batch}" if packed is None else f"{count} packed sequences"
        require(len(value) == count, self.name, value, f"one length per sequence, {named}")
        require(max(value, default=0) <= limit, self.name, value, f"lengths <= {limit}")

    def parse(self, text: str) -> tuple[int, ...]:
        """Integers between commas."""
        return ints(text)

    def format(self, value: Any) -> str:
        """Integers between commas."""
        return ints_text(value)

    def draw(self, source: Source, drawn: Drawn) -> tuple[int, ...]:
        """Most often full or most of it, else inside, sometimes 0 or 1."""
        full = self.full(drawn.seq_q, drawn.seq_k)
        kinds = ("full", "most", "inside", "most", "full", "most", "inside", "one", "none")

        def length() -> int:
            kind = source.choice(kinds)
            if kind in ("most", "inside"):
                return source.size(full // 2 if kind == "most" else 0, full)
            return {"full": full, "one": min(1, full), "none": 0}[kind]

        return tuple(length() for _ in range(drawn.sequences))

    def simpler(self, value: Any) -> Iterator[tuple[int, ...]]:
        """One length smaller."""
        for number, length in enumerate(value):
            for size in down(length, 0):
                yield (*value[:number], size, *value[number + 1 :])

    def per_sequence(self, value: Any, mask: Mask) -> list[Any]:
        """The lengths."""
        return list(value)

    def cut(self, piece: Any, rows: int, keys: int) -> int:
        """No longer than the sequence."""
        return min(int(piece), self.full(rows, keys))

    def join(self, pieces: Iterable[Any], *, packed: bool) -> tuple[int, ...]:
        """The lengths."""
        return tuple(pieces)

    def another(self, piece: Any, number: int) -> int:
        """A shorter one."""
        return max(int(piece) - 3 * number, 0)


def down(value: int, low: int) -> Iterator[int]:
    """Smaller numbers, boldest first: low, then halving the step back up to value - 1."""
    step = value - low
    while step > 0:
        yield value - step
        step //= 2
