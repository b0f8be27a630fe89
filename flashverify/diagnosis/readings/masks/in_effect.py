"""The masks in effect, in words: which pairs enter each output though they are hidden, and which are missing."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.masks.counted import KINDS, Counted, counted
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.extents import EVERY
from flashverify.diagnosis.readings.masks.heads import heads_in_effect
from flashverify.diagnosis.readings.masks.lse_counts import lse_alone
from flashverify.diagnosis.readings.masks.other_masks import other_masks
from flashverify.diagnosis.readings.masks.right_cases import Refuting, is_without, right_scenes, shows
from flashverify.diagnosis.readings.masks.rules import rules
from flashverify.diagnosis.readings.said import Said, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

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
}
_RULES = 400
"""Rules of one set that are tested."""
_FIRST = 2
"""Cases of which one shows a mask that is wrong, if any does."""


def masks_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """What the masks in effect are instead of the declared ones; empty where they are as declared, or no rule says what they are.

    Args:
        trials: runs of the subject.
        scenes: failing runs, the one that tells most first.
    """
    first = [each for each in (counted(trials, scene) for scene in scenes[:_FIRST]) if each is not None]
    if not any(_of_masks(each, name) for each in first for name in each.messages):
        return []  # a failure of a mask shows on every failing case
    found = first + [each for each in (counted(trials, scene) for scene in scenes[_FIRST:]) if each is not None]
    refuting = Refuting(right_scenes(trials), [s for s in trials.scenes.values() if "o" in s.failures])
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
    if not told:
        return maps
    right = [_NAMES[n] for n in _NAMES if n not in wrong and all(n in c.masks for c in found)]
    if right and len(right) < len(_NAMES):
        sentences.append(Said(f"{listed(right)} {'is' if len(right) == 1 else 'are'} as declared", sentences[0].cases))
    if "o" in told and (beside := _count_beside(found)):
        sentences.append(beside)
    return maps or sentences


def _sentence(names: list[str], kind: str, said: Said) -> Said:
    verb = _VERBS[kind][len(names) > 1]
    return Said(f"{listed([_NAMES[n] for n in names])} {verb} {said.words}", said.cases)


def _of_masks(each: Counted, name: str) -> bool:
    """Whether what differs of an output is its mask, or a head that is read, not its weights.

    A pair that has a weight which is no count of keys tells of weights, and so does a whole O that no key enters though it is not 0.
    """
    if name not in each.masks:
        return True
    mask = each.masks[name]
    seen = visible_of(each.scene) & mask.read & ~mask.missing
    lost = name == "o" and bool(mask.missing.any()) and not bool(seen.any())
    return not bool(mask.broken.any()) and not (lost and bool((each.scene.outputs["o"] != 0).any()))


def _rules(found: list[Counted], name: str, refuting: Refuting) -> Iterator[tuple[str, str, int]]:
    """Kind and words of what is wrong with the mask of an output, and on how many cases it holds."""
    pairs = [(kind, *_rule(found, name, kind, refuting)) for kind in KINDS]
    there = _kinds(found, name)
    told = [(kind, words, cases) for kind, words, cases in pairs if words]
    if len(told) < len(there):
        words, cases = _other(found, name)
        if words:
            yield "whole", words, cases
            return
    yield from told


def _kinds(found: list[Counted], name: str) -> list[str]:
    """What is wrong with the mask of an output on some case."""
    return [kind for kind in KINDS if any(name in c.masks and bool(c.masks[name].of(kind).any()) for c in found)]


def _other(found: list[Counted], name: str) -> tuple[str, int]:
    """Of which other place an output has the mask, and on how many cases that shows; empty where of none."""
    having = [each for each in found if name in each.masks and (each.masks[name].wrong or name in each.scene.failures)]
    if not tested_on([each.scene for each in having]) or any(
        bool(m.masks[name].broken.any() or m.masks[name].doubled.any()) for m in having
    ):
        return "", 0
    for words, where in other_masks():
        if not _has(having[0], name, where(having[0].scene)):
            continue
        if all(_has(each, name, where(each.scene)) for each in having[1:]):
            return words, len(having)
    return "", 0


def _has(each: Counted, name: str, other: Tensor) -> bool:
    """Whether the mask in effect is `other`."""
    mask = each.masks[name]
    effective = (visible_of(each.scene) | mask.surplus) & ~mask.missing
    return bool(((effective == other) | ~mask.read).all())


def _rule(found: list[Counted], name: str, kind: str, refuting: Refuting) -> tuple[str, int]:
    """The rule of a set of wrong pairs that holds on all cases, in words, and on how many it says something; empty where none does.

    A rule that would make right cases wrong speaks of those that fail alone.
    """
    having = [each for each in found if name in each.masks]
    start = next((each for each in having if bool(each.masks[name].of(kind).any())), None)
    if start is None or any(bool(each.masks[name].broken.any()) for each in having):
        return "", 0
    partly: tuple[str, int] = ("", 0)
    mask = start.masks[name]
    for rule in islice(rules(start.scene, mask.of(kind), mask.read, hidden=kind == "surplus"), _RULES):
        if kind == "doubled" and not rule.places and rule.extent.words == EVERY:
            return "", 0  # no mask, but row sums that are wrong
        cases = [start.scene]
        for each in having:
            if each is start:
                continue
            other = each.masks[name]
            predicted, there = rule.where(each.scene) & other.read, other.of(kind)
            if bool((predicted == there).all()):
                cases += [each.scene] * bool(there.any())
            elif other.wrong or name in each.scene.failures:
                break
        else:
            if not tested_on(cases):
                continue
            if kind == "missing" and name == "o" and len(_kinds(having, name)) == 1:
                others = [s for s in refuting.failing if all(s is not c.scene for c in having)]
                if not all(is_without(s, rule.where(s)) for s in others):
                    continue
            if not any(shows(s, rule.where(s)) for s in refuting.right):
                return rule.words, len(cases)
            partly = partly if partly[0] else (f"{rule.words}, on the cases that fail", len(cases))
    return partly


def places_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """What an X-ray says of one case with a wrong mask, or of the number of keys by the LSE; empty where every mask is as declared."""
    found = [each for each in (counted(trials, scene) for scene in scenes) if each is not None]
    if (words := lse_alone(found)) is not None:
        return [words]
    for each in found:
        outputs = [name for name in ("o", "lse", "dv", "dq", "dk") if _of_masks(each, name)]
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


def _count_beside(found: list[Counted]) -> Said | None:
    """What the LSE counts where O's mask is another one than declared."""
    pairs = [
        (c.count, c.entered) for c in found if c.count is not None and c.entered is not None and c.masks["o"].wrong
    ]
    if pairs and all(not bool(count.wrong.any()) for count, _ in pairs):
        return Said("the LSE counts the declared keys", len(pairs))
    return None
