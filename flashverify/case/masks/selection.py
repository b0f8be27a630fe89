"""Keys chosen by index: lists of blocks or of single keys, as in natively trained and in DeepSeek's sparse attention."""

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

__all__ = ["SELECTION", "Selection"]

_ENTRIES = (2, 4, 1, 3, 8, 5, 16, 33)
_FLAGS = 3


@dataclass(frozen=True, slots=True)
class Selection:
    """Lists of the blocks of keys that rows see. A list is a set: an entry that stands twice counts once, -1 names nothing.

    Rows and keys are counted from the start of the buffers. Every other part of the mask hides keys of a named block as it hides others.

    Args:
        entries: of a list.
        rows: in a row that share a list.
        keys: of a block; 1 is a list of single keys.
        live: in 256, the share of the entries that name a block, drawn by `seed`; the others are -1.
        seed: of the draw.
        each: lists of their own per batch entry and kv head; otherwise one for all.
        scattered: -1 stands anywhere among the named blocks; otherwise behind them.
        distinct: no block stands twice in a list; otherwise blocks are drawn one by one.
    """

    entries: int
    rows: int
    keys: int
    live: int
    seed: int
    each: bool = False
    scattered: bool = False
    distinct: bool = False

    def __post_init__(self) -> None:
        sizes = all(1 <= size < 2**31 for size in (self.entries, self.rows, self.keys))
        if not sizes or not 0 <= self.live <= 256 or not 0 <= self.seed < 2**64:
            accepted = "entries, rows, keys >= 1, 0 <= live <= 256, 0 <= seed < 2**64"
            raise UsageError(f"{self} is not accepted: {accepted}")


def _lists(case: Case) -> Any:
    from flashverify.case.masks.selection_lists import lists_array

    return lists_array(case)


class _Selection(SeededPart):
    """A list of blocks per row or per few rows."""

    name, word = "selection", "selected"
    reason = "keys of blocks that the row's list does not name"
    tensors = (TensorSpec(name="selection", axes=("batch", "head_kv", "list", "entry"), dtype="int32", values=_lists),)

    def parse(self, text: str) -> Selection:
        """Entries, rows, keys, live, seed, then three flags."""
        entries, rows, keys, live, seed, *rest = ints(text)
        given = flags(rest, _FLAGS)
        each, scattered, distinct = (*given, *(False,) * (_FLAGS - len(given)))
        return Selection(entries, rows, keys, live, seed, each=each, scattered=scattered, distinct=distinct)

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Pairs whose block the row's list names."""
        from flashverify.case.masks.selection_lists import named_tensor

        named, selection = named_tensor(case, device), case.mask.selection
        assert named is not None
        assert selection is not None
        return {"selection": lambda pairs: pairs.of(named, selection.rows, selection.keys)}

    def draw(self, source: Source, drawn: Drawn) -> Selection:
        """Of the sizes that the subject takes; short lists, and lists longer than there are blocks."""
        takes = drawn.supports.selections
        return Selection(
            source.choice(_ENTRIES),
            source.choice(takes.rows),
            source.choice(takes.keys),
            source.choice(LIVE),
            source.integer(0, 255),
            each=takes.each and source.one_in(2),
            scattered=takes.scattered and source.one_in(2),
            distinct=not takes.duplicates or source.one_in(3),
        )

    def simpler(self, value: Any) -> Iterator[Selection]:
        """Every entry named or none, a single entry, the smallest sizes, then no flags and fewer entries."""
        yield from super().simpler(value)
        for name in ("rows", "keys"):
            for size in down(getattr(value, name), 1):
                yield replace(value, **{name: size})
        for name in ("scattered", "distinct"):
            if getattr(value, name):
                yield replace(value, **{name: False})
        for entries in down(value.entries, 1):
            yield replace(value, entries=entries)


SELECTION = _Selection()
