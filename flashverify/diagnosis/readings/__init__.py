"""What a kernel computes, read off the kernel itself where no known wrong semantics explains a failure.

The masks in effect (masks/), the weights of the forward (weights/), operands in codes (codes.py), the weights and dS of the backward (backward/), and values that belong
elsewhere (elsewhere/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect
from flashverify.diagnosis.readings.codes import codes_in_effect
from flashverify.diagnosis.readings.elsewhere.values import values_elsewhere
from flashverify.diagnosis.readings.fresh import scenes_of
from flashverify.diagnosis.readings.masks.in_effect import masks_in_effect, places_in_effect
from flashverify.diagnosis.readings.said import Said
from flashverify.diagnosis.readings.weights.in_effect import weights_alone, weights_in_effect
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["Readings", "readings"]


_FEWEST = 3
"""Failing cases on which what is said of values elsewhere and of a backward holds at least, the one that is diagnosed among them."""


class Readings(NamedTuple):
    """What was read.

    Attributes:
        sentences: each begins with a capital letter or a symbol and has no full stop; none where nothing was read.
        evidence: on how many cases it holds, in words, without a full stop.
        tested: whether it holds on fresh cases; else it speaks of one case.
    """

    sentences: tuple[str, ...] = ()
    evidence: str = ""
    tested: bool = False


def readings(trials: Trials, scene: Scene, output: str) -> Readings:
    """What the kernel does instead of what is declared, each sentence tested on cases other than the one that it was read from.

    Args:
        trials: runs of the subject.
        scene: a failing run.
        output: whose failure is asked about.
    """
    names, forward = frozenset(scene.failures) | {output}, frozenset(FORWARD)
    scenes = scenes_of(trials, scene, names)
    of_forward = scenes_of(trials, scene, forward) if names & forward else []
    weights_first = weights_alone(trials, of_forward)
    said = weights_in_effect(trials, of_forward) if weights_first else []
    if not said:
        said = masks_in_effect(trials, scenes)
    if not said and scene.case.quantised is not None:
        said = codes_in_effect(trials, of_forward)
    if not said and not weights_first:
        said = weights_in_effect(trials, of_forward)
    if not said and names & set(BACKWARD):
        said = [_said(words) for words in gradients_in_effect(trials, scene)]
    if not said:
        said = [_said(words) for words in values_elsewhere(trials, scene, output)]
    return _joined(said or places_in_effect(trials, scenes))


def _said(sentence: str) -> Said:
    return Said(sentence.removesuffix("."), _FEWEST)


def _joined(said: list[Said]) -> Readings:
    if not said:
        return Readings()
    sentences = tuple(each.words[:1].upper() + each.words[1:] for each in said)
    cases = [each.cases for each in said if each.cases]
    words = (
        f"each reading holds on at least {min(cases)} failing cases of several seeds and sizes"
        if cases
        else "read on one case"
    )
    return Readings(sentences, words, bool(cases))
