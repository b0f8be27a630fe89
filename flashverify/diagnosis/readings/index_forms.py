"""Simple functions of a number, in words: where a kernel may look in place of the key, row, distance, page or group that is meant.

Their constants are learned: all of those that a case has room for are tried, so that no list need hold them.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    Of = Callable[[Tensor], Tensor]
    """Of numbers, int64, those that are taken for them."""

__all__ = ["IndexForm", "constants", "forms_of", "forms_within", "index_forms"]

_PERIODS = (2, 4, 8, 16, 32)
_LARGEST_XOR = 64


class IndexForm(NamedTuple):
    """A function of a number.

    Attributes:
        words: with `{}` for the letter of the number, such as `min({}, 40)`.
        of: the function.
    """

    words: str
    of: Of


def constants(most: int) -> Iterator[int]:
    """Whole numbers from 1 on that a case with numbers up to `most` has room for, powers of two first."""
    powers = [1 << n for n in range(most.bit_length()) if 1 << n <= most]
    yield from powers
    yield from (n for n in range(1, most + 1) if n not in powers)


def index_forms(most: int) -> Iterator[IndexForm]:
    """The functions that differ from the identity somewhere in 0 ... `most`.

    Args:
        most: the largest number of the case.
    """
    for c in constants(most):
        yield IndexForm(f"min({{}}, {c})", partial(lambda x, c: x.clamp(max=c), c=c))
        yield IndexForm(f"max({{}}, {c})", partial(lambda x, c: x.clamp(min=c), c=c))
        yield IndexForm(f"{{}} - {c}, at least 0", partial(lambda x, c: (x - c).clamp(min=0), c=c))
        yield IndexForm(f"{{}} + {c}", partial(lambda x, c: x + c, c=c))
        if c > 1:
            yield IndexForm(f"{{}} % {c}", partial(lambda x, c: x % c, c=c))
            yield IndexForm(f"{{}} // {c} * {c}", partial(lambda x, c: x // c * c, c=c))
            yield IndexForm(f"{{}} // {c} * {c} + {c - 1}", partial(lambda x, c: x // c * c + c - 1, c=c))
            yield IndexForm(
                f"{{}} // {c} * {c} + {c - 1} - {{}} % {c}",
                partial(lambda x, c: x // c * c + c - 1 - x % c, c=c),
            )
        if c < _LARGEST_XOR:
            yield IndexForm(f"{{}} ^ {c}", partial(lambda x, c: x ^ c, c=c))
        if 1 < c < 10:
            yield IndexForm(f"{{}} // {c}", partial(lambda x, c: x // c, c=c))
            yield IndexForm(f"{c} * {{}}", partial(lambda x, c: c * x, c=c))


@cache
def forms_of(count: int) -> tuple[tuple[IndexForm, ...], Tensor]:
    """The functions that differ from the identity on so many numbers, and the values of each, int64 `[functions, count]`."""
    forms, numbers = tuple(index_forms(count - 1)), torch.arange(count)
    return forms, torch.stack([form.of(numbers) for form in forms]) if forms else numbers.expand(0, count)


def forms_within(found: Tensor, told: Tensor, most: int) -> Iterator[IndexForm]:
    """The functions that say what is taken for each number, at most so many.

    Args:
        found: bool `[numbers, numbers]`: whether the second one may be what is taken for the first one.
        told: bool `[numbers]`: those of which enough is known.
        most: functions.
    """
    count = found.shape[0]
    numbers = torch.arange(count)
    if not bool((told & ~found.diagonal()).any()):
        return
    held = found | ~told.unsqueeze(-1)
    forms, to = forms_of(count)
    inside = ((to >= 0) & (to < count)).all(1)
    several = to.amin(1) != to.amax(1)  # the first, or the last, of all has words of its own
    fits = inside & several & held[numbers, to.clamp(0, count - 1)].all(1)
    chosen = fits.nonzero().squeeze(1).tolist()[:most]
    yield from (forms[n] for n in chosen)
    if len(chosen) == most:
        return
    if bool(told.all()):
        yield from _permutations(found)


def _permutations(found: Tensor) -> Iterator[IndexForm]:
    """The functions that exchange numbers within groups of as many as a power of two, learned."""
    count = found.shape[0]
    for period in _PERIODS:
        if period > count:
            return
        whole = count // period * period
        # [groups, places, places]
        inside = torch.stack([found[at : at + period, at : at + period] for at in range(0, whole, period)]).all(0)
        if not bool((inside.sum(-1) == 1).all()):
            continue
        to = inside.long().argmax(-1)
        rest = torch.arange(whole, count)
        behind = whole + to[rest % period]
        held = bool(found[rest[behind < count], behind[behind < count]].all())
        if not held or sorted(to.tolist()) != list(range(period)):
            continue
        if to.tolist() != list(range(period)):
            moved = [f"{place} for {n}" for n, place in enumerate(to.tolist()) if n != place]
            which = ", ".join(moved) if len(moved) <= 4 else f"places {to.tolist()} in this order"
            words = f"{{}}, but of every {period}, counted from 0, {which}"
            yield IndexForm(words, partial(lambda x, p, to: x // p * p + to[x % p], p=period, to=to))
        return
