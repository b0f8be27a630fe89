"""Which lists of a selection a subject takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = ["Selections", "selection_rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selections:
    """What a subject with the mask part `selection` takes of it.

    Args:
        rows: how many rows in a row share a list, from plain to wild.
        keys: keys of the block that an entry names, likewise; 1 is a single key.
        each: whether batch entries and kv heads may have lists of their own.
        scattered: whether -1 may stand before a named block; otherwise it ends the list.
        duplicates: whether a block may stand twice in a list. It counts once.

    Raises:
        UsageError: `rows` or `keys` is no tuple of integers >= 1 with one at least.
    """

    rows: tuple[int, ...] = (1,)
    keys: tuple[int, ...] = (1,)
    each: bool = True
    scattered: bool = True
    duplicates: bool = True

    def __post_init__(self) -> None:
        for name in ("rows", "keys"):
            sizes = getattr(self, name)
            fits = isinstance(sizes, tuple) and bool(sizes)
            if not fits or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in sizes):
                raise UsageError(
                    f"Selections({name}={sizes!r}) is not accepted: a tuple of integers >= 1, with one at least"
                )


def selection_rules(takes: Selections, case: Case) -> Iterator[tuple[bool, str]]:
    """Whether each rule refuses the case, and its reason."""
    selection = case.mask.selection
    if selection is None:
        return
    yield selection.rows not in takes.rows, f"selected rows={selection.rows}, it has {takes.rows}"
    yield selection.keys not in takes.keys, f"selected keys={selection.keys}, it has {takes.keys}"
    yield selection.each and not takes.each, "lists of each batch entry and kv head"
    yield selection.scattered and not takes.scattered, "lists with -1 before a named block"
    yield not selection.distinct and not takes.duplicates, "lists that may name a block twice"
