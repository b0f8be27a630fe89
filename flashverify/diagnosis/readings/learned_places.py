"""Of which key V is read, learned from the weights in effect of one case: functions of a key's number, and shifts of some of the keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.index_forms import forms_within
from flashverify.diagnosis.readings.weights.effect import effect_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.weights.effect import Effect
    from flashverify.diagnosis.trials import Trials

    Place = Callable[[Tensor, Tensor], Tensor]
    """Of the numbers of keys and how many there are, the numbers that are read instead."""

__all__ = ["learned_places"]

_FORMS = 4
_PERIODS = (2, 4, 8, 16, 32)
_CLEAR = 8.0
"""By how many tolerances a weight is to differ from 0 for a key to be told."""


def learned_places(trials: Trials, scene: Scene) -> Iterator[tuple[str, Place]]:
    """The keys whose V stands where the weights of others are, in words that follow "V is read of".

    Args:
        trials: runs of the subject.
        scene: a failing run whose LSE is right.
    """
    effect = effect_of(trials, scene) if scene.case.mask.packed is None else None
    if effect is None:
        return
    found, told = _candidates(effect)
    if not bool(told.any()):
        return
    yield from _permutations(found, told)
    for form in forms_within(found, told, _FORMS):
        yield f"key {form.words.format('j')}", lambda j, n, of=form.of: of(j)  # type: ignore[misc]
    yield from _shifts(found, told)


def _candidates(effect: Effect) -> tuple[Tensor, Tensor]:
    """Bool `[keys, keys]`, whether the second one's V may stand at the first one's weights, and `[keys]`, whether enough is known."""
    lengths = effect.scene.at.key_limit[:, 0]
    b = int(lengths.argmax())
    n = int(lengths[b])
    rows = effect.asked[b].expand(-1, -1, 1).squeeze(-1)
    p, w = (x[b][rows][:, :n] for x in (effect.exact, effect.weights))
    allowed = (effect.relative[b].expand(*rows.shape, 1)[rows] * p.abs()) + effect.floor
    told = (p > _CLEAR * allowed).any(0)
    # a key's weight is within what stands at the key that is read in its place
    within = (w[:, None, :] + 2 * allowed[:, :, None] >= p[:, :, None]).all(0)
    return within, told


def _permutations(found: Tensor, told: Tensor) -> Iterator[tuple[str, Place]]:
    """Keys that are exchanged within whole groups of as many as a power of two; a last one that is not whole is as it is."""
    count = len(found)
    for period in _PERIODS:
        whole = count // period * period
        if whole < period or not bool(told[:whole].all()):
            continue
        inside = torch.stack([found[at : at + period, at : at + period] for at in range(0, whole, period)]).all(0)
        if not bool((inside.sum(-1) == 1).all()):
            continue
        to = inside.long().argmax(-1)
        if sorted(to.tolist()) != list(range(period)) or to.tolist() == list(range(period)):
            continue
        words = f"the key at place {', '.join(map(str, to.tolist()))} of its {period} for places 0 to {period - 1}"
        yield f"{words}, in a last group that is not whole of its own", partial(_exchanged, to=to, whole=True)
        yield f"{words}, where that is one of the sequence", partial(_exchanged, to=to, whole=False)
        return


def _exchanged(j: Tensor, n: Tensor, to: Tensor, *, whole: bool) -> Tensor:
    period = len(to)
    other = j // period * period + to[j % period]
    inside = j < n // period * period if whole else other < n
    return torch.where(inside, other, j)


def _shifts(found: Tensor, told: Tensor) -> Iterator[tuple[str, Place]]:
    """The keys of some tiles are those of tiles before or behind them."""
    j = torch.arange(len(found))
    for t in TILES:
        for sign, where in ((-1, "before"), (1, "further")):
            for words, of in (
                ("every second tile of {t} keys, from the second one on", lambda tile: tile % 2 == 1),
                ("every second tile of {t} keys, from the first one on", lambda tile: tile % 2 == 0),
                ("the tiles of {t} keys behind the first one", lambda tile: tile > 0),
                ("every third tile of {t} keys, from the third one on", lambda tile: tile % 3 == 2),
                ("every fourth tile of {t} keys, from the fourth one on", lambda tile: tile % 4 == 3),
            ):
                place = partial(_shifted, t=t, sign=sign, of=of)
                to = place(j, torch.tensor(len(found)))
                if bool((to != j).any()) and bool((found[j, to] | ~told).all()):
                    yield f"the key {t} {where} in {words.format(t=t)}", place


def _shifted(j: Tensor, n: Tensor, t: int, sign: int, of: Callable[[Tensor], Tensor]) -> Tensor:
    other = j + sign * t
    return torch.where(of(j // t) & (other >= 0) & (other < n), other, j)
