"""What a kernel computes, read off the kernel itself where no known wrong semantics explains a failure.

The masks in effect (masks/), the weights of the forward (weights/), operands in codes (codes.py), the weights and dS of the backward
(backward/), and values that belong elsewhere (elsewhere/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect, no_mask
from flashverify.diagnosis.readings.backward.proportions import proportional
from flashverify.diagnosis.readings.code_tables import code_tables
from flashverify.diagnosis.readings.codes import codes_in_effect
from flashverify.diagnosis.readings.elsewhere.values import values_elsewhere
from flashverify.diagnosis.readings.fresh import scenes_of
from flashverify.diagnosis.readings.masks.counted import all_counted
from flashverify.diagnosis.readings.masks.in_effect import masks_in_effect, places_in_effect
from flashverify.diagnosis.readings.masks.scenes import mask_scenes
from flashverify.diagnosis.readings.operands import operands_in_effect, values_alone
from flashverify.diagnosis.readings.said import Said
from flashverify.diagnosis.readings.unread import unread_inputs
from flashverify.diagnosis.readings.weights.in_effect import weights_alone, weights_in_effect
from flashverify.diagnosis.trials import work
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["Readings", "readings"]


_FEWEST = 3
"""Failing cases on which what is said of values elsewhere and of a backward holds at least, the one that is diagnosed among them."""


_LOOKED_AT = 3
"""Runs with wrong gradients alone, of which the smallest has its mask counted before others have."""
_SUMS = frozenset({"delta", "dsink", "dbias", "drelative_bias"})


class Readings(NamedTuple):
    """What was read.

    Attributes:
        sentences: each begins with a capital letter or a symbol and has no full stop; none where nothing was read.
        evidence: on how many cases it holds, in words, without a full stop.
        tested: whether it holds on fresh cases; else it speaks of one case.
        part: whether a sentence leaves open what is wrong on some cases, or speaks of one case.
        both: whether right cases were asked about the first sentence too, and none of them contradicts it.
    """

    sentences: tuple[str, ...] = ()
    evidence: str = ""
    tested: bool = False
    part: bool = True
    both: bool = False


def readings(trials: Trials, scene: Scene, output: str) -> Readings:
    """What the kernel does instead of what is declared, each sentence tested on cases other than the one that it was read from.

    Args:
        trials: runs of the subject.
        scene: a failing run.
        output: whose failure is asked about.
    """
    names, forward = frozenset(scene.failures) | {output}, frozenset(FORWARD)
    said: list[Said] = []
    no_matter_of_masks = _weights_are_right(names) or (not names & forward and no_mask(trials, scene))
    if no_matter_of_masks:
        said = [_said(words) for words in gradients_in_effect(trials, scene)]
    elif not names & forward:
        said = [_said(words) for words in gradients_in_effect(trials, scene, briefly=True)]
    if said:
        return _joined(said)
    said = unread_inputs(trials, scene) if names & forward else []  # of gradients alone masks are likelier
    if not said and names & forward == {"lse"}:  # with a right O it is no matter of operands
        said = [_said(words) for words in values_elsewhere(trials, scene, "lse")]
    if said:
        return _joined(said)
    of_forward = scenes_of(trials, scene, forward) if names & forward else []
    said = values_alone(trials, of_forward)
    if said:
        return _joined(said)
    weights_first = weights_alone(trials, of_forward)
    said = weights_in_effect(trials, of_forward) if weights_first else []
    scenes = mask_scenes(trials, scene, names)
    if not said and (names & forward or not _masks_are_right(trials, scenes[:_LOOKED_AT])):
        said = masks_in_effect(trials, scenes)
    if not said and scene.case.quantised is not None:
        said = codes_in_effect(trials, of_forward) or code_tables(trials, of_forward)
    if not said and not weights_first:
        said = weights_in_effect(trials, of_forward)
    if not said or all(each.part for each in said):
        said = operands_in_effect(trials, of_forward) or said
    if not said and not names & forward:
        said = unread_inputs(trials, scene)
    if not said and names & set(BACKWARD) and not no_matter_of_masks:
        said = [_said(words) for words in gradients_in_effect(trials, scene)]
    if not said:
        said = [_said(words) for words in values_elsewhere(trials, scene, output)]
    if not said and output in BACKWARD and (words := proportional(trials, scene, output)):
        said = [Said(words, _FEWEST, part=True)]
    if not said and not no_matter_of_masks:  # a product with other values looks as if keys were missing
        said = places_in_effect(trials, scenes)
    return _joined(said)


def _weights_are_right(failing: frozenset[str]) -> bool:
    """Whether outputs are right that would be wrong with the weights of a mask: where delta, sums of dS or dK without dV fail."""
    of_rows = "delta" in failing or failing <= _SUMS
    return not failing & set(FORWARD) and (of_rows or ("dk" in failing and "dv" not in failing))


def _masks_are_right(trials: Trials, scenes: list[Scene]) -> bool:
    """Whether counting says so of the smallest of the first failing runs, in which a wrong mask would show."""
    found = all_counted(trials, sorted(scenes, key=lambda each: work(each.case))[:1])
    return bool(found) and not found[0].messages


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
    return Readings(sentences, words, bool(cases), not cases or any(each.part for each in said), said[0].both)
