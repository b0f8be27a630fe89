"""Sizes that a subject declares: a list or a range of numbers of heads or positions."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Lengths", "declared_sizes", "sizes_text"]

_ACCEPTED = "None, or a list or range of integers >= 1, with one at least"
_SEARCHED = 10**6
"""Elements of a range that are searched for one that meets every other condition."""


def declared_sizes(name: str, given: Sequence[int] | None) -> Sequence[int] | None:
    """The sizes in ascending order, each once.

    Args:
        name: of the argument of `Supports`.
        given: None, a list, a tuple or a range.

    Raises:
        UsageError: it is something else, it is empty, or a size is no integer >= 1.
    """
    if given is None:
        return None
    fits = isinstance(given, list | tuple | range) and len(given) > 0
    if fits and isinstance(given, range):
        fits = min(given[0], given[-1]) >= 1
    elif fits:
        fits = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in given)
    if not fits:
        raise UsageError(f"Supports({name}={given!r}) is not accepted: {_ACCEPTED}")
    if isinstance(given, range):
        return given if given.step > 0 else given[::-1]
    return tuple(sorted(set(given)))


def sizes_text(declared: Sequence[int]) -> str:
    """The sizes in words: `8 or 32`, `1 to 4096`, `128 to 1024 by 128`."""
    if isinstance(declared, range):
        step = f" by {declared.step}" if declared.step > 1 else ""
        return f"{declared[0]} to {declared[-1]}{step}"
    return " or ".join(map(str, declared))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The numbers >= 1 that fulfil every condition on the length of a sequence.

    Args:
        declared: lists and ranges in ascending order, each of which must hold the length.
        multiple: lengths are multiples of it.
        most: the largest one; None is none.
    """

    declared: tuple[Sequence[int], ...] = ()
    multiple: int = 1
    most: int | None = None

    def __contains__(self, length: int) -> bool:
        return (
            length >= 1
            and length % self.multiple == 0
            and (self.most is None or length <= self.most)
            and all(length in sizes for sizes in self.declared)
        )

    def __and__(self, other: Lengths) -> Lengths:
        """Those that both have; one multiple must divide the other."""
        limits = [most for most in (self.most, other.most) if most is not None]
        return Lengths(
            declared=self.declared + other.declared,
            multiple=max(self.multiple, other.multiple),
            most=min(limits, default=None),
        )

    def ascending(self, least: int = 1) -> Iterator[int]:
        """Every length from `least` on, which may be without end."""
        lists = [sizes for sizes in self.declared if not isinstance(sizes, range)]
        ranges = [sizes for sizes in self.declared if isinstance(sizes, range)]
        source = lists[0] if lists else min(ranges, key=len) if ranges else None
        if source is None:
            first = -(-least // self.multiple) * self.multiple
            numbers: Iterator[int] = (
                count(first, self.multiple) if self.most is None else iter(range(first, self.most + 1, self.multiple))
            )
        else:
            numbers = islice(source, bisect_left(source, least), bisect_left(source, least) + _SEARCHED)
        return (number for number in numbers if number in self)

    def first(self, least: int = 1) -> int | None:
        """The smallest one from `least` on; None where there is none."""
        return next(self.ascending(least), None)

    def up_to(self, limit: int, least: int = 1, *, number: int = 1) -> list[int]:
        """Those from `least` to `limit`, or the first `number` of them where these are more."""
        found: list[int] = []
        for length in self.ascending(least):
            if length > limit and len(found) >= number:
                break
            found.append(length)
        return found
