"""Simple functions of a number that hold for some numbers alone, learned from what may be taken for each: the others are their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.index_forms import IndexForm, forms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    Where = Callable[[Tensor], Tensor]
    """Of numbers, bool: for which of them a function holds."""

__all__ = ["pieces_within", "some_numbers"]

_PERIODS = (2, 3, 4, 8)
_FEWEST = 2
"""Numbers that are not their own, from which on a function of them is asked for."""


def pieces_within(found: Tensor, told: Tensor, most: int) -> Iterator[IndexForm]:
    """The functions that say what is taken for some of the numbers, at most so many; the others are their own.

    Args:
        found: bool `[numbers, numbers]`: whether the second one may be what is taken for the first one.
        told: bool `[numbers]`: those of which enough is known.
        most: functions.
    """
    count = found.shape[0]
    numbers = torch.arange(count)
    moved = numbers[told & ~found.diagonal()]
    if len(moved) < _FEWEST:
        return
    held = found | ~told.unsqueeze(-1)
    places = [(words, where, where(numbers)) for words, where in some_numbers(moved, count)]
    given: list[list[int]] = []
    forms, values = forms_of(count)
    inside = (values >= 0) & (values < count)
    allowed = inside & held[numbers, values.clamp(0, count - 1)]
    for n in allowed[:, moved].all(1).nonzero().squeeze(1).tolist():
        form, to, fits = forms[n], values[n], allowed[n]
        if to[moved].tolist() in given:
            continue
        for words, where, here in places:
            if bool(fits[here].all()) and not bool(here.all()):
                given.append(to[moved].tolist())
                yield IndexForm(f"{form.words} where {words}", partial(_pieced, of=form.of, where=where))
                break
        if len(given) == most:
            return


def some_numbers(wrong: Tensor, count: int) -> Iterator[tuple[str, Where]]:
    """Sets of numbers that hold all of `wrong`, the simpler ones first; `{}` stands for the number.

    Args:
        wrong: numbers, int64, at least one.
        count: how many numbers there are.
    """
    low, high = int(wrong.min()), int(wrong.max())
    if low:
        yield f"{{}} >= {low}", partial(lambda x, c: x >= c, c=low)
    if high < count - 1:
        yield f"{{}} < {high + 1}", partial(lambda x, c: x < c, c=high + 1)
    for period in _PERIODS:
        left = set((wrong % period).tolist())
        if len(left) == 1:
            yield f"{{}} % {period} == {min(left)}", partial(lambda x, p, r: x % p == r, p=period, r=min(left))
    for tile in TILES:
        if tile >= count:
            continue
        odd = set((wrong // tile % 2).tolist())
        if len(odd) == 1:
            yield (
                f"{{}} // {tile} is {'odd' if odd == {1} else 'even'}",
                partial(lambda x, t, r: x // t % 2 == r, t=tile, r=min(odd)),
            )
        within = wrong % tile
        first, last = int(within.min()), int(within.max())
        if first:
            yield f"{{}} % {tile} >= {first}", partial(lambda x, t, c: x % t >= c, t=tile, c=first)
        if last < tile - 1:
            yield f"{{}} % {tile} < {last + 1}", partial(lambda x, t, c: x % t < c, t=tile, c=last + 1)


def _pieced(x: Tensor, of: Where, where: Where) -> Tensor:
    return torch.where(where(x), of(x), x)
