"""The masks in effect, in words: which pairs enter each output though they are hidden, and which are missing."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.masks.bits import masks_of_learned_bits, masks_of_other_bits
from flashverify.diagnosis.readings.masks.choosing import Refuting, chosen_rule
from flashverify.diagnosis.readings.masks.coarse import coarsely
from flashverify.diagnosis.readings.masks.counted import KINDS, Counted, Mask, all_counted
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.heads import heads_in_effect
from flashverify.diagnosis.readings.masks.key_maps import counts_of_other_keys
from flashverify.diagnosis.readings.masks.numbers import Counts, number_in_effect
from flashverify.diagnosis.readings.masks.other_masks import other_masks
from flashverify.diagnosis.readings.masks.row_counts import count_beside, lse_alone
from flashverify.diagnosis.readings.masks.scenes import right_scenes
from flashverify.diagnosis.readings.said import ON_FAILING, Said, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["masks_in_effect", "places_in_effect"]

_NAMES = {"o": "O", "dv": "dV", "dq": "dQ", "dk": "dK"}
_VERBS = {
    "whole": ("has", "have"),
    "surplus": ("sees", "see"),
    "missing": ("misses", "miss"),
    "doubled": ("counts more than once", "count more than once"),
    "read": ("reads other keys:", "read other keys:"),
}
_ASKED = ("surplus", "missing", "doubled")
"""Kinds whose rules right cases may refute."""
_TOO = " too"
"""With what a rule ends beside which pairs are wrong of which no rule speaks."""
_FEWEST = 3
"""Cases on which other keys are read, at least."""
_FIRST = 2
"""Cases of which one shows a mask that is wrong, if any does."""


def masks_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """What the masks in effect are instead of the declared ones; empty where they are as declared, or no rule says what they are.

    Args:
        trials: runs of the subject.
        scenes: failing runs, the one that tells most first.
    """
    found = all_counted(trials, scenes[:_FIRST])
    if not any(each.of_mask(name) for each in found for name in each.messages):
        return []  # a failure of a mask shows on every failing case
    found = all_counted(trials, scenes)
    refuting = Refuting(
        right_scenes(trials, scenes[0]), [s for s in trials.scenes.values() if "o" in s.failures and s not in scenes]
    )
    said: list[tuple[list[str], str, Said]] = []
    wrong = [name for name in _NAMES if any(name in c.masks and c.masks[name].wrong for c in found)]
    for name in wrong:
        for kind, words, cases in _rules(found, name, refuting):
            same = next((each for each in said if (each[1], each[2].words) == (kind, words)), None)
            if same is not None:
                same[0].append(name)
            else:
                said.append(([name], kind, Said(words, cases)))
    sentences = [_sentence(*each) for each in said]
    told = {name for names, _, _ in said for name in names}
    maps = heads_in_effect(found)
    if not maps and all(each.part for each in sentences):
        sentences = _of_numbers(trials, found, refuting) or sentences
    if not told:
        return maps or sentences
    whole = [_NAMES[n] for n in _NAMES if n not in wrong and all(_was_read(c, n) for c in found)]
    if whole and len(whole) < len(_NAMES):
        sentences.append(Said(f"{listed(whole)} {'is' if len(whole) == 1 else 'are'} as declared", sentences[0].cases))
    if "o" in told and (beside := count_beside(found)):
        sentences.append(beside)
    return maps or sentences


def _of_numbers(trials: Trials, found: list[Counted], refuting: Refuting) -> list[Said]:
    """Which other numbers the masks have."""
    told: dict[str, tuple[list[str], int]] = {}
    for name in _NAMES:
        masks = [each.masks[name] for each in found if name in each.masks]
        if not any(mask.wrong for mask in masks) or any(bool((mask.broken | mask.doubled).any()) for mask in masks):
            continue
        words, cases = number_in_effect(trials, _counts(found, name), refuting.right, partial(_count, trials, name))
        if words:
            told.setdefault(words, ([], cases))[0].append(name)
    return [_sentence(names, "whole", Said(words, cases)) for words, (names, cases) in told.items()]


def _count(trials: Trials, name: str, scenes: list[Scene]) -> list[Counts]:
    return _counts(all_counted(trials, scenes), name)


def _counts(found: list[Counted], name: str) -> list[Counts]:
    having = [(each.scene, each.masks[name]) for each in found if name in each.masks]
    return [Counts(scene, _effective(scene, mask), mask.read, name) for scene, mask in having]


def _was_read(each: Counted, name: str) -> bool:
    """Whether the mask of an output was read where that of another one is wrong."""
    wrong = [m.surplus | m.missing | m.doubled for m in each.masks.values() if m.wrong]
    return name in each.masks and all(bool((each.masks[name].read & where).any()) for where in wrong)


def _sentence(names: list[str], kind: str, said: Said) -> Said:
    verb = _VERBS[kind][len(names) > 1]
    part = said.words.endswith((ON_FAILING, _TOO))
    return Said(
        f"{listed([_NAMES[n] for n in names])} {verb} {said.words}", said.cases, part, both=kind in _ASKED and not part
    )


def _rules(found: list[Counted], name: str, refuting: Refuting) -> Iterator[tuple[str, str, int]]:
    """Kind and words of what is wrong with the mask of an output, and on how many cases it holds."""
    there = [kind for kind in KINDS if any(name in c.masks and bool(c.masks[name].of(kind).any()) for c in found)]
    pairs = [(kind, *chosen_rule(found, name, kind, refuting, alone=there == [kind])) for kind in there]
    told = [(kind, words, cases) for kind, words, cases in pairs if words]
    if len(there) > 1 and "doubled" in there:
        words, cases = _other_keys(found, name)
        if words:
            yield "read", words, cases
            return
    if len(told) < len(there):
        words, cases = _other(found, name)
        if words:
            yield "whole", words, cases
            return
    beside = _beside([kind for kind in there if all(kind != each[0] for each in told)])
    yield from ((kind, words + beside, cases) for kind, words, cases in told)


def _beside(kinds: list[str]) -> str:
    """That pairs of kinds are wrong too of which no rule speaks."""
    also = {"surplus": "hidden keys enter", "missing": "others are missing", "doubled": "others count more than once"}
    words = [also[kind] for kind in kinds]
    return f"; {listed(words)}{_TOO}" if words else ""


def _other(found: list[Counted], name: str) -> tuple[str, int]:
    """Of which other place an output has the mask, and on how many cases that shows; empty where of none."""
    having = [each for each in found if name in each.masks and (each.masks[name].wrong or name in each.scene.failures)]
    if not tested_on([each.scene for each in having]) or any(
        bool(m.masks[name].broken.any() or m.masks[name].doubled.any()) for m in having
    ):
        return "", 0
    for words, where in chain(other_masks(), masks_of_other_bits(), _learned(having, name)):
        if not _has(having[0], name, where(having[0].scene)):
            continue
        if all(_has(each, name, where(each.scene)) for each in having[1:]):
            return words, len(having)
    return "", 0


def _learned(having: list[Counted], name: str) -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    """Masks that the largest of the cases suggests."""
    most = max(having, key=lambda each: each.masks[name].read.numel())
    mask = most.masks[name]
    yield from masks_of_learned_bits(most.scene, _effective(most.scene, mask), mask.read)


def _effective(scene: Scene, mask: Mask) -> Tensor:
    return (visible_of(scene) | mask.surplus) & ~mask.missing


def _has(each: Counted, name: str, other: Tensor) -> bool:
    """Whether the mask in effect is `other`."""
    mask = each.masks[name]
    return bool(((_effective(each.scene, mask) == other) | ~mask.read).all())


def _other_keys(found: list[Counted], name: str) -> tuple[str, int]:
    """Which keys of a paged cache an output reads in place of others, and on how many cases that shows; empty where none says so."""
    having = [each for each in found if name in each.masks and each.masks[name].wrong]
    if len(having) < _FEWEST or not tested_on([each.scene for each in having]):
        return "", 0
    for words, counts in counts_of_other_keys():
        if all(_counts_are(each.masks[name], counts(each.scene)) for each in having):
            return words, len(having)
    return "", 0


def _counts_are(mask: Mask, predicted: Tensor | None) -> bool:
    return predicted is not None and bool(((mask.counts == predicted) | ~mask.read).all())


def places_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """What an X-ray says of one case with a wrong mask, or of the number of keys by the LSE; empty where every mask is as declared."""
    found = all_counted(trials, scenes)
    if (words := lse_alone(found)) is not None:
        return [words]
    if said := coarsely(found):
        return said
    for each in found:
        outputs = [name for name in ("o", "lse", "dv", "dq", "dk") if each.of_mask(name)]
        messages = [words for name in outputs for words in each.messages.get(name, ())]
        messages = [
            words
            for words in messages
            if not words.startswith(("lse: ", "heads of k,")) and "instead of none" not in words
        ]
        if messages:
            case = each.scene.case
            size = f"{case.batch} x {case.heads_q} heads, {case.seq_q} rows and {case.seq_k} keys"
            return [Said(f"on a case of {size}, {'; '.join(messages[:2])}", 0)]
    return []
