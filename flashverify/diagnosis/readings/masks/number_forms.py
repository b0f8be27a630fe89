"""Formulas of what a kernel may take for a number of the mask: other numbers of the case, sums, limits and multiples of them."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.bounds import Within, declared_of
from flashverify.diagnosis.readings.masks.number_atoms import number_atoms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.bounds import Bound

    Number = Callable[[Scene], Tensor | None]
    """Of each row of a scene, int64, broadcasts to `[B, Hq, Sq]`; None where the case has not what it is about."""

__all__ = ["NumberForm", "number_forms"]

_MULTIPLES = (2, 4, 8, *TILES)
_UNUSUAL = (3, 5, 6, 7, 10, 12, 20, 24, 48, 96, 256)
_SHARES = ((2, 3), (3, 4), (3, 2))
_SMALL = 8
"""Of a number that is added to a formula of two, the largest magnitude."""
_SIMPLEST = 4
"""Ways to join a number with a part of another one."""
_OF_MASK = 14
"""Numbers of a case, the first ones, of which two are joined without the declared one."""
_MOST = 1 << 20
"""A number that a code may hold is smaller."""


class NumberForm(NamedTuple):
    """A formula.

    Attributes:
        words: such as `left // 2`.
        of: its value; None where the case has not what it is about.
        plain: whether it joins no two numbers of the case.
    """

    words: str
    of: Number
    plain: bool = True


def number_forms(bound: Bound, scenes: Sequence[Scene], found: Sequence[Within]) -> Iterator[NumberForm]:
    """The formulas of a bound that every scene allows, the simpler ones first.

    Args:
        bound: whose number.
        scenes: with a mask that was counted.
        found: what the number of each is.
    """
    own = NumberForm(bound.symbol, partial(declared_of, bound=bound))
    others = [NumberForm(words, of) for words, of in number_atoms(bound).items()]
    allowed = _Allowed(scenes, found)
    near = [own, *(each for each in others if each.of(scenes[0]) is not None)]
    yield from filter(allowed, near)
    for each in near:
        yield from filter(allowed, _alone(each, allowed))
    for other in near[1:]:
        yield from allowed.shifted(_joined(own, other))
    of_mask = near[1:_OF_MASK]
    for other in of_mask:
        for part in _parts(other):
            yield from filter(allowed, islice(_joined(own, part), _SIMPLEST))
    for n, one in enumerate(of_mask):
        for other in of_mask[n + 1 :]:
            yield from filter(allowed, _joined(one, other))


class _Allowed:
    """Whether formulas are possible on every scene."""

    def __init__(self, scenes: Sequence[Scene], found: Sequence[Within]) -> None:
        self.scenes, self.found = scenes, found

    def __call__(self, form: NumberForm) -> bool:
        for scene, each in zip(self.scenes, self.found, strict=True):
            value = form.of(scene)
            if value is None or not each.holds(value):
                return False
        return True

    def away(self, form: NumberForm) -> tuple[int, int] | None:
        """By how much the number may be off the formula in every row: at least, and less than."""
        low, high = -_MOST, _MOST
        for scene, each in zip(self.scenes, self.found, strict=True):
            value = form.of(scene)
            if value is None:
                return None
            low = max(low, int((each.low - value).max()))
            high = min(high, int((each.high - value).min()))
        return (low, high) if low < high else None

    def shifted(self, forms: Iterator[NumberForm]) -> Iterator[NumberForm]:
        """Those that are possible with a small number added that is the same in every row."""
        for form in forms:
            off = self.away(form)
            if off is None or off[0] > _SMALL or off[1] <= -_SMALL:
                continue
            by = _nearest(*off)
            yield _plus(form, by) if by else form

    def apart(self, form: NumberForm, sign: int) -> tuple[int, int] | None:
        """What the number is, at least and less than, in the rows in which it is smaller than the formula (`sign` -1), or larger."""
        low, high = -_MOST, _MOST
        for scene, each in zip(self.scenes, self.found, strict=True):
            value = form.of(scene)
            if value is None:
                return None
            off = (value < each.low) if sign > 0 else (value >= each.high)
            if bool(off.any()):
                low, high = max(low, int(each.low[off].max())), min(high, int(each.high[off].min()))
        return (low, high) if -_MOST < low < high < _MOST else None


def _alone(form: NumberForm, allowed: _Allowed) -> Iterator[NumberForm]:
    """The number with a constant that is learned, half of it, twice it, and rounded to a multiple."""
    words, of = _bracketed(form.words), form.of
    if (off := allowed.away(form)) is not None and (by := _nearest(*off)):
        yield _plus(form, by)
    for sign, name in ((-1, "min"), (1, "max")):
        if (limits := allowed.apart(form, sign)) is not None:
            c = _roundest(*limits)
            of_limit = _mapped(of, (lambda x, c: x.clamp(max=c)) if sign < 0 else (lambda x, c: x.clamp(min=c)), c)
            yield NumberForm(f"{name}({words}, {c})", of_limit)
    for more in (0, 1, -1):
        end = f" {'+' if more > 0 else '-'} {abs(more)}" * bool(more)
        for c in (2, 3, 4):
            yield NumberForm(f"{words} // {c}{end}", _mapped(of, lambda x, c, m: x // c + m, c, more))
            yield NumberForm(f"-(-{words} // {c}){end}", _mapped(of, lambda x, c, m: -(-x // c) + m, c, more))
            yield NumberForm(f"{c} * {words}{end}", _mapped(of, lambda x, c, m: x * c + m, c, more))
        for p, q in _SHARES:
            yield NumberForm(f"{p} * {words} // {q}{end}", _mapped(of, lambda x, p, q, m: p * x // q + m, p, q, more))
            yield NumberForm(
                f"-(-{p} * {words} // {q}){end}", _mapped(of, lambda x, p, q, m: -(-p * x // q) + m, p, q, more)
            )
        for c in (*_MULTIPLES, *_UNUSUAL):
            yield NumberForm(f"{words} // {c} * {c}{end}", _mapped(of, lambda x, c, m: x // c * c + m, c, more))
            yield NumberForm(
                f"{words} rounded up to a multiple of {c}{end}",
                _mapped(of, lambda x, c, m: -(-x // c) * c + m, c, more),
            )
    for c in (*_MULTIPLES, 256):
        yield NumberForm(f"{words} % {c}", _mapped(of, lambda x, c: x % c, c))
    yield NumberForm(f"-{words}", _mapped(of, lambda x: -x))


def _nearest(low: int, high: int) -> int:
    """The number nearest to 0 from `low` on and below `high`."""
    return max(low, min(0, high - 1))


def _plus(form: NumberForm, by: int) -> NumberForm:
    """A formula and a number."""
    words = f"{by}" if form.words == "0" else f"{_bracketed(form.words)} {'+' if by > 0 else '-'} {abs(by)}"
    return NumberForm(words, _mapped(form.of, lambda x, c: x + c, by), form.plain)


def _parts(form: NumberForm) -> Iterator[NumberForm]:
    """Half of a number, twice it, its remainders, and the multiples before it."""
    words, of = _bracketed(form.words), form.of
    yield NumberForm(f"{words} // 2", _mapped(of, lambda x: x // 2))
    yield NumberForm(f"2 * {words}", _mapped(of, lambda x: 2 * x))
    for c in _MULTIPLES:
        yield NumberForm(f"{words} % {c}", _mapped(of, lambda x, c: x % c, c))
        yield NumberForm(f"{words} // {c} * {c}", _mapped(of, lambda x, c: x // c * c, c))


def _joined(one: NumberForm, two: NumberForm) -> Iterator[NumberForm]:
    """A sum, a difference, the smaller or the larger one of two numbers."""
    a, b = _bracketed(one.words), _bracketed(two.words)
    for words, change in (
        (f"min({one.words}, {two.words})", torch.minimum),
        (f"max({one.words}, {two.words})", torch.maximum),
        (f"{a} + {b}", torch.add),
        (f"{a} - {b}", torch.sub),
        (f"max({a} - {b}, 0)", lambda x, y: (x - y).clamp(min=0)),
        (f"{a} + {b} - 1", lambda x, y: x + y - 1),
        (f"{a} - {b} - 1", lambda x, y: x - y - 1),
        (f"{a} - {b} + 1", lambda x, y: x - y + 1),
        (f"{b} - {a}", lambda x, y: y - x),
        (f"{a} * {b}", torch.mul),
        (f"{a} // {b}", lambda x, y: x // y.clamp(min=1)),
        (f"{a} // {b} * {b}", lambda x, y: x // y.clamp(min=1) * y.clamp(min=1)),
        (f"{a} rounded up to a multiple of {b}", lambda x, y: -(-x // y.clamp(min=1)) * y.clamp(min=1)),
    ):
        yield NumberForm(words, partial(_of_two, one=one.of, two=two.of, change=change), plain=False)


def _bracketed(words: str) -> str:
    """A difference or a remainder as a part of a formula."""
    inner = any(f" {sign} " in words for sign in ("+", "-", "%", "//")) and not words.startswith(("max(", "min(", "("))
    return f"({words})" if inner else words


def _mapped(of: Number, change: Callable[..., Tensor], *constants: int) -> Number:
    def value(scene: Scene) -> Tensor | None:
        x = of(scene)
        return None if x is None else change(x, *constants)

    return value


def _of_two(scene: Scene, one: Number, two: Number, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    a, b = one(scene), two(scene)
    return None if a is None or b is None else change(a, b)


def _roundest(low: int, high: int) -> int:
    """Of the numbers from `low` on and below `high` the multiple of the largest power of two."""
    for power in reversed(range(21)):
        found = -(-low // (1 << power)) << power
        if found < high:
            return found
    return low
