"""Row sums that are wrong in some rows alone: what they are there, and which rows these are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.weights.masses import masses, sum_of
from flashverify.diagnosis.readings.weights.models import GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

    Rows = Callable[[Effect, Tensor], Tensor]
    """Of an effect and the logits of its model, bool, broadcasts to `[B, Hq, Sq]`."""

__all__ = ["mass_in_some_rows", "which_rows"]

_APART = 8.0
"""Times the tolerance that two row sums differ by where a row tells which of them it has."""
_FEWEST = 6
"""Rows of each kind that tell."""


def mass_in_some_rows(rows: Sequence[Any]) -> str:
    """In words, what the row sums are in which rows, all others being as declared; empty where nothing known says exactly that.

    Args:
        rows: cases with an `effect`, its `logits` and the `shift` of its rows.
    """
    for words, of in masses(rows[0].effect):
        if not words:
            continue
        told = [_told(row, of) for row in rows]
        if any(each is None for each in told):
            continue
        found = [(row, *each) for row, each in zip(rows, told, strict=True) if each is not None]
        wrong, right = (sum(int(each[n].sum()) for each in found) for n in (1, 2))
        if min(wrong, right) < _FEWEST:
            continue
        for where, which in which_rows():
            if all(_exactly(which(row.effect, row.logits), of_wrong, of_right) for row, of_wrong, of_right in found):
                return f"{words}, in rows {where}"
    return ""


def _told(row: Any, of: Callable[[Effect, Tensor], Tensor]) -> tuple[Tensor, Tensor] | None:
    """The rows that have the mass and no other, and those that have the declared one and no other; None where one has neither."""
    other, own = of(row.effect, row.logits), sum_of(row.effect, row.logits)
    asked = ~row.effect.open_rows & (row.shift > GONE)
    tolerance = row.effect.relative.squeeze(-1) + 1e-6 * (1 + own.abs())
    theirs, declared = ((row.shift + x).abs() <= tolerance for x in (other, own))
    if bool((asked & ~theirs & ~declared).any()):
        return None
    apart = asked & ~((other - own).abs() <= _APART * tolerance)
    return apart & theirs, apart & declared


def _exactly(where: Tensor, wrong: Tensor, right: Tensor) -> bool:
    return not bool((wrong & ~where).any()) and not bool((right & where).any())


def which_rows() -> Iterator[tuple[str, Rows]]:
    """Rows, in words."""
    yield "whose sink is above their largest logit", lambda e, z: _sink(e, z) > z.amax(-1)
    yield "whose sink is below their largest logit", lambda e, z: _sink(e, z) < z.amax(-1)
    yield "whose largest logit is negative", lambda e, z: z.amax(-1) < 0
    yield "whose largest logit is positive", lambda e, z: z.amax(-1) > 0
    yield "whose LSE is negative", lambda e, z: sum_of(e, z) < 0
    yield "whose LSE is positive", lambda e, z: sum_of(e, z) > 0
    yield "that see a single key", lambda e, z: _seen(z) == 1
    yield "that see several keys", lambda e, z: _seen(z) > 1
    yield "from which some key is hidden", lambda e, z: _seen(z) < z.shape[-1]
    yield "from which no key is hidden", lambda e, z: _seen(z) == z.shape[-1]
    for t in TILES:
        yield f"that see more than {t} keys", partial(lambda e, z, t: _seen(z) > t, t=t)
        yield f"that see at most {t} keys", partial(lambda e, z, t: _seen(z) <= t, t=t)
        yield f"that see no multiple of {t} keys", partial(lambda e, z, t: _seen(z) % t != 0, t=t)
        for words, which in (
            (f"whose largest logit is behind their first tile of {t} keys", lambda e, z, t: z.argmax(-1) // t > 0),
            (f"whose largest logit is in their first tile of {t} keys", lambda e, z, t: z.argmax(-1) // t == 0),
            (f"behind the first tile of {t} rows", lambda e, z, t: _row(e) >= t),
            (f"of the first tile of {t} rows", lambda e, z, t: _row(e) < t),
            (f"behind the last multiple of {t}", lambda e, z, t: _row(e) >= e.scene.at.rows[:, None] // t * t),
        ):
            yield words, partial(which, t=t)
    yield "of query heads behind the first one of a group", lambda e, z: _head(z) % e.scene.group > 0
    yield "of query heads behind the first one", lambda e, z: _head(z) > 0
    yield "of sequences behind the first one", lambda e, z: e.scene.at.row_sequence[:, None] > 0


def _sink(effect: Effect, z: Tensor) -> Tensor:
    sink = effect.scene.inputs.sink
    return z[..., 0] * torch.nan if sink is None else sink.double().view(1, -1, 1)


def _seen(z: Tensor) -> Tensor:
    """How many keys each row sees."""
    return torch.isfinite(z).sum(-1)


def _row(effect: Effect) -> Tensor:
    return effect.scene.at.row[:, None]


def _head(z: Tensor) -> Tensor:
    return torch.arange(z.shape[1]).view(1, -1, 1)
