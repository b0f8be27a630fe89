"""What O and the LSE are off by where an operand is taken without its mean: a mean of V in O, a number of each row in the LSE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.said import Said
from flashverify.diagnosis.readings.weights.effect import effect_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.weights.effect import Effect
    from flashverify.diagnosis.trials import Trials

__all__ = ["lse_term", "mean_of_v"]

_FEWEST = 3
"""Failing cases on which a sentence holds at least."""
_SAME = 0.02
"""Relative distance at which multiples of a mean, or of a term, are the same."""
_LEAST_ROWS = 8
_FACTORS = (
    (1.0, ""),
    (math.log2(math.e), "log2(e) times "),
    (math.log(2.0), "ln 2 times "),
    (2.0, "twice "),
    (0.5, "half "),
)


def mean_of_v(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """That O holds a mean of V too much or too little: all weights of a row are off by the same number; empty where they are not.

    Args:
        trials: runs of the subject.
        scenes: failing runs whose O is wrong and whose LSE is right.
    """
    effects = [each for each in (effect_of(trials, scene) for scene in scenes) if each is not None and not each.right]
    if len(effects) < _FEWEST or not tested_on([each.scene for each in effects]):
        return []
    for words, where in (
        ("all keys of the sequence", _inside),
        ("the keys that the row sees", lambda e: visible_of(e.scene)),
        ("all keys of the buffer", lambda e: torch.ones((), dtype=torch.bool)),
    ):
        found = [_multiple(effect, where(effect)) for effect in effects]
        if any(each is None for each in found):
            continue
        times = torch.cat([each for each in found if each is not None])
        middle = float(times.median()) if times.numel() else 0.0
        if not bool(((times - middle).abs() <= _SAME * (1 + abs(middle))).all()) or abs(middle) <= _SAME:
            continue
        often = "" if abs(abs(middle) - 1) <= _SAME else f"{abs(middle):.4g} times "
        mean = f"{often}the mean of V over {words}"
        if middle < 0:
            return [
                Said(
                    f"O lacks {mean}, as of a V whose mean is taken off and not added again; the weights are as declared",
                    len(effects),
                )
            ]
        return [Said(f"O holds {mean} beside what it should; the weights are as declared", len(effects))]
    return []


def _inside(effect: Effect) -> Tensor:
    at = effect.scene.at
    same = at.key_sequence[:, None, None, :] == at.row_sequence[:, None, :, None]
    return (at.key < at.key_limit)[:, None, None, :] & same


def _multiple(effect: Effect, keys: Tensor) -> Tensor | None:
    """By how many means of V over `keys`, bool, O is off in each row, `[rows]`; None where weights are off in another way."""
    there = keys.expand(effect.weights.shape)
    off = effect.weights - effect.exact
    rows = effect.asked.squeeze(-1) & there.any(-1)
    count = there.sum(-1).clamp(min=1)
    mean = (off * there).sum(-1) / count
    allowed = effect.relative * (effect.exact.abs() + mean.abs().unsqueeze(-1)) + effect.floor
    apart = (off - torch.where(there, mean.unsqueeze(-1), 0.0)).abs() > allowed
    if bool((apart & rows.unsqueeze(-1)).any()):
        return None
    return (mean * count)[rows]


def lse_term(found: list[tuple[Effect, Tensor]]) -> Said | None:
    """What stands in the LSE of every row too much or too little, by a factor that all rows have in common; None where nothing known does.

    Args:
        found: cases with an LSE, and what it should be, natural, `[B, Hq, Sq]`.
    """
    off = []
    for effect, declared in found:
        assert effect.lse is not None
        off.append(effect.lse - declared)
    rows = [~effect.open_rows & torch.isfinite(x) for (effect, _), x in zip(found, off, strict=True)]
    if sum(int(x.sum()) for x in rows) < _LEAST_ROWS:
        return None
    for words, of in _terms():
        terms = [of(effect) for effect, _ in found]
        x = torch.cat([term[some] for term, some in zip(terms, rows, strict=True)])
        y = torch.cat([each[some] for each, some in zip(off, rows, strict=True)])
        if not bool(torch.isfinite(x).all()) or float(x.square().sum()) == 0:
            continue
        factor = float((x * y).sum() / x.square().sum())
        named = next(((f, name) for f, name in _FACTORS if abs(abs(factor) - f) <= _SAME * f), None)
        if named is None:
            continue
        exact = math.copysign(named[0], factor)
        if all(e.lse_near(d + exact * term, some) for (e, d), term, some in zip(found, terms, rows, strict=True)):
            verb = "has" if factor > 0 else "lacks"
            beside = " beside what it should" if factor > 0 else ""
            return Said(f"the LSE {verb} {named[1]}{words}{beside}", len(found))
    return None


def _terms() -> Iterator[tuple[str, Callable[[Effect], Tensor]]]:
    yield (
        "the scaled product of the row's q with the mean of K over the keys, as of a K whose mean is taken off",
        _of_mean_k,
    )
    yield (
        "the logarithm of the number of keys that the row sees",
        lambda e: visible_of(e.scene).expand(e.weights.shape).sum(-1).double().log(),
    )
    yield (
        "the logarithm of the number of keys of the sequence",
        lambda e: e.scene.at.keys[:, None].double().clamp(min=1).log().expand(e.weights.shape[:3]),
    )
    yield "the mean of the logits that the row sees", _mean_logit
    yield "the largest logit that the row sees", lambda e: e.logits.masked_fill(~e.visible, -math.inf).amax(-1)


def _mean_logit(effect: Effect) -> Tensor:
    see = effect.visible.expand(effect.logits.shape)
    return torch.where(see, effect.logits, 0.0).sum(-1) / see.sum(-1).clamp(min=1)


def _of_mean_k(effect: Effect) -> Tensor:
    """`scale q mean(K)` over the keys of the row's sequence, which lie within their length."""
    scene, inputs = effect.scene, effect.scene.inputs
    there = _inside(effect).expand(scene.case.batch, 1, *effect.weights.shape[2:]).double()
    k = inputs.k.double().nan_to_num(0.0, 0.0, 0.0).repeat_interleave(scene.group, 1)
    mean = there @ k / there.sum(-1, keepdim=True).clamp(min=1)
    return (inputs.q.double() * mean).sum(-1) * inputs.scale
