"""What K, V or Q are read as where no weights can be read or they tell nothing: the operand of other places, in some channels or all."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.case.shared_kv import shares
from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.expected import explains
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.learned_places import learned_places
from flashverify.diagnosis.readings.moved_channels import channels_in_effect
from flashverify.diagnosis.readings.operand_maps import at_keys, of_channels, of_places
from flashverify.diagnosis.readings.said import ON_FAILING, Said
from flashverify.diagnosis.readings.weights.means import mean_of_v
from flashverify.diagnosis.readings.weights.term import COEFFICIENTS
from flashverify.diagnosis.trials import work
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

    Given = Callable[[Scene], dict[str, Tensor] | None]
    """The operands that a subject reads otherwise than declared; None where that is as declared."""

__all__ = ["operands_in_effect", "values_alone"]

_NAMED = 3
"""Of the factors by name, those before are numbers of `of_channels`."""
_FEWEST = 3
"""Failing cases on which a sentence holds at least."""
_COARSE = 0.05
"""Share of the largest element that a value of O may be off a model that is worth its bounds."""
_OPERANDS: tuple[tuple[str, ...], ...] = (("v",), ("k",), ("k", "v"), ("q",))


class _Model(NamedTuple):
    words: str
    given: Given


def values_alone(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """Of which channels and keys V is read, where O alone is wrong and the LSE counts the declared keys; empty where nothing that right cases bear says so."""
    if not scenes or any("o" not in scene.failures or "lse" in scene.failures for scene in scenes):
        return []
    if any("lse" not in scene.outputs for scene in scenes):
        return []
    said = channels_in_effect(trials, scenes) or mean_of_v(trials, scenes)
    if said or not tested_on(scenes) or len(scenes) < _FEWEST:
        return said
    return [each for each in _first_that_fits(trials, scenes, _learned(trials, scenes)) if not each.part]


def operands_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """What one operand, or K and V alike, are instead of what is declared, if that makes the O and LSE of all cases; empty where nothing does.

    Args:
        trials: runs of the subject.
        scenes: failing runs, the one that tells most first.
    """
    scenes = [scene for scene in scenes if scene.failures.keys() & set(FORWARD) and "o" in scene.right]
    if len(scenes) < _FEWEST or not tested_on(scenes):
        return []
    told = all("lse" in scene.outputs for scene in scenes)
    of_v = told and all("lse" not in scene.failures for scene in scenes)
    operands = [names for names in _OPERANDS if not told or (names == ("v",)) == of_v]
    return _first_that_fits(trials, scenes, _models(scenes[0], operands))


def _first_that_fits(trials: Trials, scenes: list[Scene], models: Iterator[_Model]) -> list[Said]:
    """The first model that makes the O and LSE of all cases and no right case wrong; else one that right cases contradict."""
    right = [scene for scene in trials.scenes.values() if not scene.failures and "o" in scene.right]
    ordered, contradicted = sorted(scenes, key=lambda scene: work(scene.case)), ""
    for model in models:
        if not trials.within():
            break
        if not all(_near(scene, model) for scene in ordered):
            continue
        answers = [_makes(scene, model) for scene in ordered]
        if None in answers or not any(answers):
            continue
        if all(_leaves(scene, model) for scene in right):
            return [Said(model.words, len(scenes), both=bool(right))]
        contradicted = contradicted or model.words
    return [Said(f"{contradicted}{ON_FAILING}", len(scenes), part=True)] if contradicted else []


def _models(scene: Scene, operands: list[tuple[str, ...]]) -> Iterator[_Model]:
    """Every model of these operands; each entry has those that are read alike."""
    for names in operands:
        subject = " and ".join(name.upper() for name in names)
        verb = "is" if len(names) == 1 else "are"
        own, number = ("row", "i") if names == ("q",) else ("key", "j")
        for words, move in of_places():
            said = words.replace("{} x", f"{own} {number}").format(own)
            yield _Model(f"{subject} {verb} read of {said}", partial(_moved, names=names, move=move))
            if names in (("k",), ("q",)) and shares(scene.case):
                part = f"the channels of {subject} beyond those of V"
                yield _Model(f"{part} are read of {said}", partial(_moved, names=names, move=move, rest=True))
        for words, factor in COEFFICIENTS[_NAMED:] if len(names) == 1 else ():
            times = partial(_factored, name=names[0], factor=factor)
            yield _Model(f"the channels of {subject} are {words} what they are", times)
            if names in (("k",), ("q",)) and shares(scene.case):
                part = f"the channels of {subject} beyond those of V are {words} what they are"
                yield _Model(part, partial(times, rest=True))
        for words, change in of_channels() if len(names) == 1 else ():
            yield _Model(f"the channels of {subject} are {words}", partial(_changed, name=names[0], change=change))
            if names in (("k",), ("q",)) and shares(scene.case):
                part = f"the channels of {subject} beyond those of V"
                yield _Model(f"{part} are {words}", partial(_changed, name=names[0], change=change, rest=True))


def _learned(trials: Trials, scenes: list[Scene]) -> Iterator[_Model]:
    """Keys of V that the weights in effect of the case with the most keys suggest."""
    most = max(scenes, key=lambda scene: scene.case.seq_k)
    for words, place in learned_places(trials, most):
        yield _Model(f"V is read of {words}", partial(_moved, names=("v",), move=at_keys(place)))


def _moved(
    scene: Scene,
    names: tuple[str, ...],
    move: Callable[[Scene, str, Tensor], Tensor | None],
    *,
    rest: bool = False,
) -> dict[str, Tensor] | None:
    found: dict[str, Tensor] = {}
    for name in names:
        for operand in (name, f"{name}_scale"):
            own = _operand(scene, operand)
            if own is None:
                continue
            x = move(scene, name, own)
            if x is None:
                return None
            found[operand] = _beyond(scene, own, x) if rest and operand == name else x
    return found


def _changed(
    scene: Scene, name: str, change: Callable[[Tensor], Tensor], *, rest: bool = False
) -> dict[str, Tensor] | None:
    own, width = _operand(scene, name), scene.case.dim_v if rest else 0
    if own is None or own.shape[-1] <= width:
        return None
    return {name: torch.cat((own[..., :width], change(own[..., width:])), -1)}


def _factored(
    scene: Scene, name: str, factor: Callable[[Case], float], *, rest: bool = False
) -> dict[str, Tensor] | None:
    number = factor(scene.case)
    return _changed(scene, name, lambda x: x * number, rest=rest) if math.isfinite(number) else None


def _beyond(scene: Scene, own: Tensor, other: Tensor) -> Tensor:
    width = scene.case.dim_v
    return torch.cat((own[..., :width], other[..., width:]), -1)


def _operand(scene: Scene, name: str) -> Tensor | None:
    """An operand as it lies in memory, float64 and finite; the scales of one in codes by their own names."""
    if scene.case.quantised is not None or name.endswith("_scale"):
        found: Tensor | None = getattr(scene.inputs, name)
    else:
        found = getattr(scene.problem, name)
    return None if found is None else found.double().nan_to_num(0.0, 0.0, 0.0)


def _given(scene: Scene, model: _Model) -> dict[str, Any] | None:
    """The operands of a model; None where they are as declared."""
    found = model.given(scene)
    if found is None:
        return None
    same = all(torch.equal(x, own) for name, x in found.items() if (own := _operand(scene, name)) is not None)
    return None if same else found


def _near(scene: Scene, model: _Model) -> bool:
    """Whether the O of the model is about that of the subject where it is wrong."""
    given, wrong = _given(scene, model), scene.failures.get("o")
    if given is None:
        return False
    if wrong is None:
        return True
    inputs = replace(scene.inputs, **given)
    if set(given) <= {"v", "v_scale"}:
        if "plain weights" not in scene.memo:
            scene.memo["plain weights"] = _weights(scene.inputs)
        weights = scene.memo["plain weights"]
    else:
        weights = _weights(inputs)
    made = weights @ inputs.v.double().repeat_interleave(scene.group, 1)
    off = (made - scene.outputs["o"]).abs()[wrong]
    return bool((off <= _COARSE * made.abs().amax()).all())


def _weights(inputs: Any) -> Tensor:
    """What O weighs V by, float64."""
    z = logits(inputs)
    total = z.logsumexp(-1, keepdim=True)
    if inputs.sink is not None:
        total = torch.logaddexp(total, inputs.sink.double().view(1, -1, 1, 1).expand_as(total))
    found = (z - total).exp().nan_to_num(0.0, 0.0, 0.0)
    return found if inputs.keep is None else found * inputs.keep / (1.0 - inputs.dropout)


def _makes(scene: Scene, model: _Model) -> bool | None:
    """Whether the outputs are clearly those of the model; None where they are not within its bounds."""
    given = _given(scene, model)
    names = frozenset(FORWARD) & scene.outputs.keys()
    if given is None:
        return None
    alternative = Alternative(inputs=replace(scene.inputs, **given))
    if not scene.agrees(alternative, names):
        return None
    expected = scene.expect(alternative, names)
    return any(
        explains(expected[name], scene.right[name], scene.outputs[name], scene.failures[name], clearly=True)
        for name in names & scene.failures.keys()
    )


def _leaves(scene: Scene, model: _Model) -> bool:
    """Whether a right case is right under the model too."""
    given = _given(scene, model)
    names = frozenset(FORWARD) & scene.outputs.keys()
    return given is None or scene.agrees(Alternative(inputs=replace(scene.inputs, **given)), names)
