"""Logits that are multiplied by a factor of each row, sequence or head, and on what that factor depends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.checks.passes.logits import products
from flashverify.diagnosis.readings.said import Said
from flashverify.diagnosis.readings.weights.models import deviation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["factors_depend"]

_KEYS = 3
"""Keys whose weights can be read, from which on a row tells."""
_ROWS = 6
"""Rows that tell, at least, over all cases."""
_LINEAR = 1e-3
"""Of the squared deviation, what the factor of its row may leave."""
_SAME = 0.01
"""Relative distance of factors that are the same."""
_APART = 0.02
"""How far from 1, and from one another, some factors are."""
_POINTS, _SHARED = 4, 2
"""Values of a thing from which on a formula of it tells, and those that several cases share, from which on a function does."""
_EXAMPLES = 3


class _Row(NamedTuple):
    """What each row is multiplied by, `[rows]`, and where the rows lie: `[rows]` each, by name."""

    factor: Tensor
    things: dict[str, Tensor]


def factors_depend(effects: list[Effect]) -> list[Said]:
    """By what the scaled products of each row are multiplied, if by one number, and of which one thing that number is a function; empty where not.

    Args:
        effects: cases with wrong weights, without a softcap, a bias and ALiBi: there a factor is one of the whole logit.
    """
    plain = [each for each in effects if _plain(each)]
    read = [each for each in (_read(effect) for effect in plain) if each is not None]
    contradicted, read = len(read) < len(plain), [each for each in read if len(each.factor)]
    if contradicted or len(read) < 2 or sum(len(row.factor) for row in read) < _ROWS:
        return []
    factor = torch.cat([row.factor for row in read])
    if float((factor - 1).abs().max()) < _APART or float(factor.max() - factor.min()) < _APART:
        return []
    case = torch.cat([torch.full((len(row.factor),), n) for n, row in enumerate(read)])
    for name in read[0].things:
        x = torch.cat([row.things[name] for row in read])
        if (table := _function(x, factor)) is not None and len(table) > 2:
            own = "the scaled products are multiplied by"
            if len(table) >= _POINTS and (formula := _formula(name, table)) is not None:
                return [Said(f"{own} {formula}", len(read))]
            if sum(len(torch.unique(case[x == value])) > 1 for value, _ in table) < _SHARED:
                continue  # a factor of each case is a function of whatever differs from case to case
            some = [table[n] for n in sorted({0, len(table) // 2, len(table) - 1})][:_EXAMPLES]
            told = ", ".join(f"{y:.4g} at {x:g}" for x, y in some)
            return [Said(f"{own} a function of {name} alone: {told}", len(read), part=True)]
    return []


def _plain(effect: Effect) -> bool:
    logits = effect.scene.case.logits
    return logits.softcap is None and not effect.scene.inputs.biases


def _read(effect: Effect) -> _Row | None:
    """The factor of every row that tells, of none where no row has enough keys; None where the logits of some row are off in another way."""
    deviation, z = deviation_of(effect), products(effect.scene.inputs).expand(effect.weights.shape)
    read = deviation.read & torch.isfinite(deviation.logit)
    count = read.sum(-1, keepdim=True).clamp(min=1)
    x = torch.where(read, z, 0.0)
    y = torch.where(read, deviation.logit, 0.0)
    x = torch.where(read, x - x.sum(-1, keepdim=True) / count, 0.0)
    y = torch.where(read, y - y.sum(-1, keepdim=True) / count, 0.0)
    spread = x.square().sum(-1)
    some = (read.sum(-1) >= _KEYS) & (spread > 1e-2)
    if bool(deviation.hidden.any()):
        return None
    factor = (x * y).sum(-1) / spread.clamp(min=1e-12)
    left = (y - factor.unsqueeze(-1) * x).square().sum(-1)
    allowed = _LINEAR * y.square().sum(-1) + count.squeeze(-1) * (2 * effect.relative.squeeze(-1) + 1e-5).square()
    if bool((left > allowed)[some].any()):
        return None
    b, h, i = some.nonzero().T
    at = effect.scene.at
    own = b.clamp(max=at.row.shape[0] - 1)
    see = effect.visible.expand(effect.weights.shape).sum(-1)
    things = {
        "the number of keys of the sequence": at.keys[own, i],
        "the number of keys that the row sees": see[b, h, i],
        "the number of rows of the sequence": at.rows[own, i],
        "the row's position": (at.row + at.shift)[own, i],
        "the row's number": at.row[own, i],
        "the query head": h,
        "the sequence": at.row_sequence[own, i],
    }
    return _Row(factor[some], {name: value.double() for name, value in things.items()})


def _function(x: Tensor, y: Tensor) -> list[tuple[float, float]] | None:
    """The values at each `x`; None where one `x` has several."""
    found = []
    for value in torch.unique(x):
        mine = y[x == value]
        if float(mine.max() - mine.min()) > _SAME * (1 + float(mine.abs().max())):
            return None
        found.append((float(value), float(mine.median())))
    return found


def _formula(name: str, table: list[tuple[float, float]]) -> str | None:
    """A formula with one number for a function; None where none of those known is it."""
    for words, of in _forms():
        told = [(of(x), y) for x, y in table if of(x) is not None and of(x)]
        if len(told) < len(table) - 1 or len(told) < 2:
            continue
        ratios = [y / float(fx or 1.0) for fx, y in told]
        middle = sorted(ratios)[len(ratios) // 2]
        if all(abs(ratio - middle) <= 2 * _SAME * abs(middle) for ratio in ratios):
            times = "" if abs(middle - 1) <= _SAME else f"{middle:.4g} times "
            return f"{times}{words} of {name}"
    return None


def _forms() -> Iterator[tuple[str, Callable[[float], float | None]]]:
    yield "the logarithm", lambda x: math.log(x) if x > 1 else None
    yield "the logarithm of one more than that", lambda x: math.log(x + 1) if x > 0 else None
    yield "the root", lambda x: math.sqrt(x) if x > 0 else None
    yield "1 / the root", lambda x: 1 / math.sqrt(x) if x > 0 else None
    yield "the size", lambda x: x if x > 0 else None
    yield "1 / the size", lambda x: 1 / x if x > 0 else None
