"""On what wrong logits or row sums depend, where nothing says what they are: one thing that they are a function of, with some of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.checks.passes.logits import products
from flashverify.diagnosis.readings.said import Said
from flashverify.diagnosis.readings.weights.models import GONE, deviation_of
from flashverify.diagnosis.readings.weights.term import BIASES, bias_of, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["logits_depend", "sums_depend"]

_BINS = 24
"""Values of a number that is no whole one are taken together in so many groups of equal size."""
_EXPLAINED, _ROUGHLY = 0.98, 0.95
"""Of the squared deviation, what a function of one thing must make on every case: of a whole number, and of another one."""
_WRONG, _READ = 0.2, 300
"""Pairs that are off among those that were read, and pairs that were read, from which on a case tells."""
_DATA = 4
"""Pairs for each value of the thing, at least."""
_ROUNDS = 12
_OVERLAP, _OFF = 4, 0.25
"""Values that two cases have in common at least, and how far their functions may be apart, of their size."""
_SAME = 2e-3
"""Distance of logarithms at which two factors are the same."""
_APART = 0.02
"""Of which some differ at least."""


class _Fitted(NamedTuple):
    """A function as its values `y` at `x`, ascending, and how much of the squared deviation it makes."""

    x: Tensor
    y: Tensor
    share: float


def logits_depend(effects: Sequence[Effect]) -> list[Said]:
    """The one thing of which the logits in effect are off by a function, on every case; empty where there is none."""
    told = [each for each in effects if _tells(each)]
    if len(told) < 2:
        return []
    for thing in _things(told[0]):
        least = _EXPLAINED if thing.whole else _ROUGHLY
        fits = [fit for fit in (_fitted(each, thing) for each in told) if fit is not None and fit.share >= least]
        if len(fits) == len(told) and all(_alike(fits[0], other) for other in fits[1:]):
            some = _examples(fits[0], whole=thing.whole)
            words = f"the logits in effect are off by a function of {thing.words} alone: {some}"
            return [Said(words, len(told), part=True)]
    return []


def _alike(one: _Fitted, other: _Fitted) -> bool:
    """Whether two cases have the same function, up to a number of each, as far as its values overlap."""
    inside = (one.x >= other.x[0]) & (one.x <= other.x[-1])
    x, y = one.x[inside], one.y[inside]
    if len(x) < _OVERLAP:
        return False
    right = torch.searchsorted(other.x, x).clamp(1, len(other.x) - 1)
    share = (x - other.x[right - 1]) / (other.x[right] - other.x[right - 1])
    theirs = other.y[right - 1] + share * (other.y[right] - other.y[right - 1])
    apart = y - theirs
    return bool((apart - apart.mean()).norm() <= _OFF * (y - y.mean()).norm())


def _tells(effect: Effect) -> bool:
    deviation = deviation_of(effect)
    read = int(deviation.read.sum())
    return not bool(deviation.hidden.any()) and read >= _READ and int(deviation.wrong.sum()) >= _WRONG * read


class _Thing(NamedTuple):
    """What logits may depend on, in words: its values, whether these are whole numbers, and the unit of the deviation, if it is not 1."""

    words: str
    of: Callable[[Effect], Tensor | None]
    whole: bool
    unit: Callable[[Effect], Tensor] | None = None


def _things(effect: Effect) -> Iterator[_Thing]:
    yield _Thing("the key's number", lambda e: e.scene.at.key[:, None, None, :].double(), True)
    yield _Thing("the distance of the key from the row's position", signed, True)
    if effect.scene.case.logits.softcap:
        yield _Thing(
            "the scaled product, both in units of the cap,", lambda e: products(e.scene.inputs) / _cap(e), False, _cap
        )
    else:
        yield _Thing("the scaled product", lambda e: products(e.scene.inputs), False)
    if effect.scene.problem.slopes is not None:
        yield _Thing("the distance, in units of ALiBi's slope", signed, True, _slopes)
    for name, words in BIASES:
        if getattr(effect.scene.problem, name) is not None:
            yield _Thing(f"what {words} adds", lambda e, n=name: bias_of(e, n), False)  # type: ignore[misc]


def _cap(effect: Effect) -> Tensor:
    return torch.full((1, 1, 1, 1), effect.scene.case.logits.softcap or 1.0, dtype=torch.float64)


def _slopes(effect: Effect) -> Tensor:
    slopes = effect.scene.problem.slopes
    assert slopes is not None
    return slopes.double().view(1, -1, 1, 1)


def _fitted(effect: Effect, thing: _Thing) -> _Fitted | None:
    """The function that, with a number of each row, makes most of the deviation; None where too little was read."""
    value, deviation = thing.of(effect), deviation_of(effect)
    read = deviation.read & torch.isfinite(deviation.off)
    unit = torch.ones(1, 1, 1, 1, dtype=torch.float64) if thing.unit is None else thing.unit(effect)
    read = read & (unit != 0)
    if value is None or int(read.sum()) < _DATA * _BINS:
        return None
    x, off = value.expand_as(read)[read].double(), (deviation.off / unit)[read]
    row = torch.arange(read[..., 0].numel()).view(read.shape[:3]).unsqueeze(-1).expand_as(read)[read]
    if thing.whole:
        at, number = torch.unique(x, return_inverse=True)
    else:
        edges = torch.quantile(x, torch.linspace(0, 1, _BINS + 1, dtype=torch.float64)[1:-1])
        number = torch.bucketize(x, edges)
        at = _means(x, number, _BINS)
    count = len(at)
    if not 1 < count <= len(x) / _DATA or int(row.max()) < 2:
        return None
    of_row, of_value = torch.zeros(int(row.max()) + 1, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    for _ in range(_ROUNDS):
        of_row = _means(off - of_value[number], row, len(of_row))
        of_value = _means(off - of_row[row], number, count)
    centred = off - _means(off, row, len(of_row))[row]
    left = off - of_row[row] - of_value[number]
    total = float((centred**2).sum())
    return _Fitted(at, of_value - of_value[at.abs().argmin()], 1 - float((left**2).sum()) / total) if total else None


def _means(x: Tensor, number: Tensor, count: int) -> Tensor:
    """The mean of `x` of each number."""
    many = torch.bincount(number, minlength=count).clamp(min=1)
    return torch.zeros(count, dtype=torch.float64).index_add(0, number, x) / many


def _examples(fit: _Fitted, *, whole: bool) -> str:
    """Three of its values, the largest one of either sign among them."""
    picked = sorted({int(fit.y.argmin()), int(fit.y.abs().argmin()), int(fit.y.argmax())})
    at = "{:g}" if whole else "about {:.3g}"
    return ", ".join(f"{float(fit.y[n]):+.2g} at {at.format(float(fit.x[n]))}" for n in picked)


def sums_depend(rows: Sequence[Any]) -> str:
    """In words, by what rows are told apart whose weights have the same factor; empty where nothing known tells them apart.

    Args:
        rows: cases with an `effect`, its `logits` and the `shift` of its rows.
    """
    for words, of in _KINDS:
        spread, differ = 0.0, False
        for row in rows:
            total = row.logits.logsumexp(-1)
            asked = ~row.effect.open_rows & (row.shift > GONE) & torch.isfinite(total)
            factor, kind = (total + row.shift)[asked], of(row).expand(row.shift.shape)[asked]
            kinds = sorted(set(kind.tolist()))
            for each in kinds:
                mine = factor[kind == each]
                spread = max(spread, float(mine.max() - mine.min()))
            differ |= len(kind) > 2 * len(kinds) and float(factor.max() - factor.min()) > _APART
        if differ and spread <= _SAME:
            return words
    return ""


_KINDS: tuple[tuple[str, Callable[[Any], Tensor]], ...] = (
    ("of one query head", lambda row: torch.arange(row.shift.shape[1]).view(1, -1, 1)),
    ("that see as many keys", lambda row: torch.isfinite(row.logits).sum(-1)),
    ("of one number in their sequence", lambda row: row.effect.scene.at.row[:, None]),
    ("of one sequence", lambda row: row.effect.scene.at.row_sequence[:, None]),
)
"""Rows that may have a factor in common, in words, and the number of their kind."""
