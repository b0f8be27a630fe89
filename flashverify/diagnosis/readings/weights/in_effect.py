"""The weights in effect, in words: what the logits are instead, what the row sums are, and whose the LSE is."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.masks.right_cases import right_scenes
from flashverify.diagnosis.readings.said import Said
from flashverify.diagnosis.readings.weights.dependences import logits_depend, sums_depend
from flashverify.diagnosis.readings.weights.draw_limits import draw_limits
from flashverify.diagnosis.readings.weights.effect import Effect, declared_effect, effect_of
from flashverify.diagnosis.readings.weights.gone_rows import which_are_gone
from flashverify.diagnosis.readings.weights.limited_sums import limited_sum
from flashverify.diagnosis.readings.weights.lse_in_effect import Row, lse_words
from flashverify.diagnosis.readings.weights.masses import (
    DECLARED_SUM,
    LEFT_OUT,
    LEFT_OUT_TERMS,
    masses,
    sink_in_effect,
    sum_of,
)
from flashverify.diagnosis.readings.weights.models import DECLARED, GONE, deviation_of, row_shift
from flashverify.diagnosis.readings.weights.proposals import LEAVES_OUT, proposals
from flashverify.diagnosis.readings.weights.row_factors import factors_depend
from flashverify.diagnosis.readings.weights.row_masses import mass_in_some_rows
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.weights.models import Model
    from flashverify.diagnosis.trials import Trials

__all__ = ["weights_alone", "weights_in_effect"]

_PROPOSED = 1500
"""Models that are tried."""
_OF_V = "with V one-hot over the keys, O holds the declared weights: the error is in V, in the sum with it or in O's rounding, not in the weights"
_RIGHT = 6
"""Right cases on which a model is tried."""
_CLEAR = 0.05
"""Weights that are so far apart show in O, whose V is as large."""
_FITTING = 8
"""Models that make the weights and leave the row sums open, among which one is looked for that does not."""
_ROUNDING = 0.01
"""How far from 1 the sums of weights may be for an error of precision."""
_ONE = 1e-3
"""Relative distance at which row sums have a factor in common."""


def weights_alone(trials: Trials, scenes: list[Scene]) -> bool:
    """Whether the first of the cases has weights that are wrong by no mask.

    That is so where all visible pairs enter, no hidden ones, and some by no whole number; or where only draws or row sums are wrong.
    """
    effect = effect_of(trials, scenes[0]) if scenes else None
    if effect is None:
        return False
    deviation = deviation_of(effect)
    times = deviation.off[deviation.wrong].exp()
    if bool(deviation.hidden.any()) or not bool((times > 0).all()):
        return False
    if not times.numel():
        return not effect.right
    return bool(((times - times.round()).abs() > _ONE * times).any())


def weights_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """What the weights of the forward are instead of the declared ones; empty where no model fits, or they cannot be read.

    Args:
        trials: runs of the subject.
        scenes: failing runs, the one that tells most first.
    """
    effects = [each for each in (effect_of(trials, scene) for scene in scenes) if each is not None]
    wrong = [each for each in effects if not each.right or _lse_off(each)]
    if not tested_on([each.scene for each in wrong]):
        return _right(effects)
    rows = _model(trials, wrong)
    return factors_depend(wrong) or logits_depend(wrong) if rows is None else _in_words(rows)


def _lse_off(effect: Effect) -> bool:
    return effect.lse is not None and "lse" in effect.scene.failures


def _right(effects: list[Effect]) -> list[Said]:
    """That the weights are right where O is wrong."""
    if not tested_on([each.scene for each in effects]) or not all(
        each.right and "o" in each.scene.failures and _beyond_weights(each) for each in effects
    ):
        return []
    return [Said(_OF_V, len(effects), part=True)]


def _beyond_weights(effect: Effect) -> bool:
    """Whether O is wrong by more than weights can do that are off by what `near` takes for rounding: in fp32 that is far above it."""
    scene = effect.scene
    v = scene.inputs.v.abs().nan_to_num().repeat_interleave(scene.group, 1)
    off = (scene.outputs["o"] - scene.right["o"].value).abs()
    return bool((~(off <= effect.relative * (effect.exact.abs() @ v))).any())


def _model(trials: Trials, wrong: list[Effect]) -> list[Row] | None:
    """Each case with its logits and row shifts under the first model that makes the weights of all cases; one whose row sums are known goes first."""
    tried, right = 0, right_scenes(trials)[:_RIGHT]
    found: list[list[Row]] = []
    most = max(wrong, key=lambda each: each.scene.case.seq_k)
    least = min(wrong, key=lambda each: work(each.scene.case))  # draws are tried on small cases alone
    limits = chain.from_iterable(draw_limits(each) for each in wrong)
    for start in dict.fromkeys((wrong[0], most, wrong[1], least)):
        for model in chain(limits, proposals(start)):
            tried += 1
            if tried > _PROPOSED or len(found) > _FITTING or not trials.within():
                return found[0] if found else None
            rows = _fitted(model, [start, *(other for other in wrong if other is not start)])
            if rows is None or any(_makes_wrong(model, scene) for scene in right):
                continue
            found.append(rows)
            if _mass(rows) is not None:
                return rows
        if found:
            return found[0]
    return None


def _makes_wrong(model: Model, scene: Scene) -> bool:
    """Whether the weights of a model would make O clearly wrong on a case that the subject computes rightly."""
    effect = declared_effect(scene) if model is not DECLARED else None
    if effect is None:
        return False
    logits, kept = model.logits(effect), model.kept(effect)
    if logits is None or kept is None:
        return False
    weights = (logits - sum_of(effect, logits).unsqueeze(-1)).exp().nan_to_num(0.0, 0.0, 0.0) * kept
    value = scene.inputs.v.abs().amax(-1).repeat_interleave(scene.group, 1).unsqueeze(-2)
    clear = ((weights - effect.exact).abs() > _CLEAR) & effect.asked & (value > _CLEAR)
    return bool(clear.any())


def _fitted(model: Model, effects: list[Effect]) -> list[Row] | None:
    rows = []
    for effect in effects:
        logits, shift = model.logits(effect), row_shift(effect, model)
        if logits is None or shift is None:
            return None
        rows.append(Row(model, effect, logits, shift.squeeze(-1)))
    return rows


def _mass(rows: list[Row], *, gone: bool = False) -> str | None:
    """What the weights are divided by, as `masses` words it, of rows that have weights where `gone`; None where it is nothing that is known."""
    constant = _constant(rows)
    if constant is not None and abs(constant - 1) >= _ONE:
        return f"{constant:.4g}"
    known = (
        words
        for words, of in masses(rows[0].effect)
        if all(_summed(row, of(row.effect, row.logits), gone=gone) for row in rows)
    )
    return next(known, None)


def _in_words(rows: list[Row]) -> list[Said]:
    model, cases, mass = rows[0].model, len(rows), _mass(rows)
    said = [Said(model.words, cases)] if model.words else []
    if (zeros := _read_as_zeros(model.words, mass or _mass(rows, gone=True))) is not None:
        return [Said(zeros, cases), *lse_words(rows)]
    sink = sink_in_effect(rows) if mass is None else ""
    if sink:
        said.append(Said(sink, cases))
    elif mass is None and (some := mass_in_some_rows(rows)):
        said.append(Said(f"the row sum that O is divided by {some}; that of the others is as declared", cases))
    elif mass is None and (limit := limited_sum(rows)):
        said.append(Said(f"the row sum that O is divided by {limit}", cases))
    elif mass is None and all(_summed(row, sum_of(row.effect, row.logits), gone=True) for row in rows):
        which = which_are_gone(rows)
        own = (
            f"some rows have no weights at all although they see keys{', ' * bool(which)}{which}; the others are right"
        )
        said.append(Said(own, cases, part=not which))
    elif mass is None:
        (low, high), whose = _sums(rows), "these" if model.words else "the declared ones"
        if max(1 - low, high - 1) < _ROUNDING:
            return said + lse_words(rows)
        own = f"the weights of a row are {whose} up to a factor of its own, which no known row sum explains: they sum to {low:.3g} ... {high:.3g} times what they should"
        if same := sums_depend(rows):
            own += f", as much in all rows {same}"
        said.append(Said(own, cases, part=True))
    elif mass[:1].isdigit():
        said.append(Said(f"the weights of each row sum to {mass} times what they should", cases))
    elif mass:
        said.append(Said(f"the row sum that O is divided by {mass}", cases))
    return said + lse_words(rows)


def _read_as_zeros(words: str, mass: str | None) -> str | None:
    """That K and V, or V alone, are zeros of keys that O leaves out but the row sum does not; None where that is not so."""
    if not words.startswith(LEAVES_OUT) or mass is None:
        return None
    keys = words.removeprefix(LEAVES_OUT).removeprefix(", for ")
    if mass in (LEFT_OUT, LEFT_OUT_TERMS):
        return f"K and V are read as zeros, which take part in the softmax with a product of 0, for {keys}"
    return f"V is read as zeros, for {keys}: their weights are in the row sum" if mass == DECLARED_SUM else None


def _summed(row: Row, mass: Tensor, *, gone: bool = False) -> bool:
    """Whether the weights of every row are divided by `mass`, of every row that has weights where `gone`."""
    far = (row.shift + mass).abs()
    tolerance = row.effect.relative.squeeze(-1) + 1e-6 * (1 + mass.abs())
    apart = row.effect.open_rows | (row.shift <= GONE) if gone else row.effect.open_rows
    apart = apart | ~row.weighs  # a row without weights has any sum
    return bool((((far <= tolerance) & mass.isfinite()) | apart).all())


def _constant(rows: list[Row]) -> float | None:
    """The factor that the sums of all rows of all cases have in common; None where they have none."""
    found = [(row.shift + sum_of(row.effect, row.logits))[~row.effect.open_rows] for row in rows]
    first = next((float(each.median()) for each in found if each.numel()), 0.0)
    same = all(bool(((each - first).abs() <= _ONE).all()) for each in found)
    return math.exp(first) if same else None


def _sums(rows: list[Row]) -> tuple[float, float]:
    """The smallest and the largest sum of the weights of a row, over what it should be."""
    ratios = []
    for effect in (row.effect for row in rows):
        declared = effect.exact.sum(-1)
        ratios += (effect.weights.sum(-1) / declared)[~effect.open_rows & (declared > 0)].tolist()
    return min(ratios), max(ratios)
