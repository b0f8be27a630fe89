"""A part of a campaign for one machine of several: decided by the numbers of cases and batches, never by time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MOST_SHARDS", "WHOLE", "Shard"]

MOST_SHARDS = 10_000


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard number `index` of `of`; its text is `index/of`, and empty for the whole.

    Of each list of cases it judges every `of`-th case. Of the batches of a search it draws every `of`-th round, in which each subject has
    one batch.
    """

    index: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that `text` names; raises ValueError where it names none."""
        if not text:
            return WHOLE
        index, slash, of = text.partition("/")
        if not (slash and all(word.isascii() and word.isdigit() for word in (index, of))):
            raise ValueError(text)
        shard = cls(int(index), int(of))
        if not 1 <= shard.index <= shard.of <= MOST_SHARDS:
            raise ValueError(text)
        return shard

    def __str__(self) -> str:
        return "" if self.of == 1 else f"{self.index}/{self.of}"

    def share(self, cases: tuple[str, ...]) -> tuple[str, ...]:
        """Its cases of a list."""
        return cases[self.index - 1 :: self.of]

    def has_batch(self, number: int, subjects: int) -> bool:
        """Whether a batch is its own, where so many subjects take turns."""
        return number // subjects % self.of == self.index - 1


WHOLE = Shard()
