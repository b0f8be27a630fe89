"""Claims on places inside a case: the wrong semantics at some heads, rows, keys or channels, the declared one elsewhere."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim, agreeing
from flashverify.diagnosis.neighbours import resized
from flashverify.diagnosis.places import PLACES, Region, region_of
from flashverify.diagnosis.related_cases import grown, variants
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.case.case import Case
    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.hypothesis import Semantics
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["WHOLE", "covering", "placed"]

WHOLE = "semantics that explain all of it"
"""In the memory of a run, once it was asked."""

_NEEDED = 3
"""Cases that a claim must explain clearly, and cases on which its place must matter."""
_LARGE = 60_000
_RANKED = 12
"""Claims that are looked at further."""
_HEADS = 3
"""Kv heads of one more: of two, every second one is the first, or the last."""
_TELLING = ((70, 90), (40, 50), (64, 64), (128, 128), (130, 20), (20, 130), (200, 100), (96, 200))
"""Rows and keys of further cases."""


def placed(trials: Trials, start: Scene, share: float) -> list[tuple[Claim, str]]:
    """Claims on places that no case contradicts, the simplest places first, each with its evidence in words.

    The evidence is empty where a case is right although the claim says that it is wrong, or where too few cases tell.
    """
    for _ in trials.of(variants(trials.subject, start.case), share=share - 0.2):
        pass
    failing = [scene for scene in trials.scenes.values() if scene.failures]
    telling = sorted((s for s in failing if work(s.case) <= _LARGE), key=_told, reverse=True)
    if not telling:
        return []
    first, *more = telling[:3]
    likely = list(_candidates(trials, first, more, share, start.memo.get(WHOLE, ())))
    claims = [
        claim for claim in likely if _fits(claim, telling[:3])
    ]  # the smallest case often lies at the place as a whole
    claims = claims or list(_candidates(trials, first, more, share, SEMANTICS))
    answers: dict[int, list[Answer]] = {id(claim): [] for claim in claims}
    others = [*telling[1:], *(s for s in trials.scenes.values() if s not in telling)]
    for scene in chain(others, trials.of(_apart_cases(trials, start), share=share)):
        kept = []
        for claim in claims:
            if not trials.left(share):
                return []
            answers[id(claim)].append(claim.answer(scene))
            if answers[id(claim)][-1] is not Answer.OTHERWISE:
                kept.append(claim)
        claims = kept
        if not claims:
            return []
    ranked = sorted(claims, key=lambda claim: (Answer.RIGHT in answers[id(claim)], _rank(claim)))
    scenes = list(trials.scenes.values())
    return [
        (claim, _evidence(claim, answers[id(claim)], scenes) if trials.left(share) else "")
        for claim in ranked[:_RANKED]
    ]


def _apart_cases(trials: Trials, start: Scene) -> Iterator[Case]:
    """Cases on which places of different sizes are different."""
    case = start.case
    for rows, keys in _TELLING:
        sized = resized(case, rows, keys)
        if sized is not None and not trials.known(sized):
            yield sized
    wide = grown(case, 4, 6, regime="normal", seed=71, heads_q=_HEADS * start.group, heads_kv=_HEADS)
    if wide is not None and not trials.known(wide):
        yield wide


def _rank(claim: Claim) -> tuple[int, int]:
    order = min(PLACES.index(each) for each in claim.conditions)
    return order, SEMANTICS.index(claim.semantics)


def _told(scene: Scene) -> float:
    """How much a failing case says of the place: the share of right elements in outputs that are wrong elsewhere, its axes, its size."""
    shares = [1.0 - float(wrong.double().mean()) for wrong in scene.failures.values()]
    case = scene.case
    sizes = (case.batch > 1, case.heads_kv > 1, case.heads_q > case.heads_kv, case.seq_q > 16, case.seq_k > 16)
    return sum(shares) / len(shares) + 0.2 * sum(sizes) - 0.1 * math.log10(1 + work(case))


def covering(scene: Scene) -> Iterator[tuple[Condition, Region]]:
    """Places, neither empty nor everything, outside of which no element is wrong."""
    for place in PLACES:
        region = region_of(scene, (place,))
        if region.nothing or region.everything:
            continue
        for name, wrong in scene.failures.items():
            inside = region.elements(name, wrong.shape)
            if inside is not None and bool((wrong & ~inside).any()):
                break
        else:
            yield place, region


def _candidates(
    trials: Trials, scene: Scene, more: list[Scene], share: float, tried: Sequence[Semantics]
) -> Iterator[Claim]:
    """Every semantics at every place that explains `scene`; at places on both sides of which an element lies if no other one explains `more` too."""
    groups: dict[tuple[bytes, tuple[int, int] | None], tuple[Region, list[Condition]]] = {}
    full = (*scene.case.shape_q[:3], scene.case.seq_k)
    for place, region in covering(scene):
        key = bytes(region.pairs.expand(full).numpy().tobytes()), region.channels
        groups.setdefault(key, (region, []))[1].append(place)
    names = frozenset(scene.failures)
    apart = [group for group in groups.values() if _is_apart(scene, group[0])]
    found = False
    for chosen in (apart, [group for group in groups.values() if group not in apart]):
        for semantics in tried if not found else ():
            if not names <= set(semantics.outputs):
                continue
            for region, places in chosen:
                if not trials.left(share):
                    return
                if agreeing(semantics, scene, names, region) is not None:
                    claims = [Claim(semantics, (place,), names) for place in places]
                    found = found or any(_fits(claim, [scene, *more]) for claim in claims)
                    yield from claims


def _fits(claim: Claim, scenes: list[Scene]) -> bool:
    """Whether failing runs do not contradict a claim, and it explains one of them clearly."""
    asked = Claim(claim.semantics, claim.conditions, claim.scope)
    answers = [asked.answer(scene) for scene in scenes]
    return Answer.OTHERWISE not in answers and Answer.CLEAR in answers


def _is_apart(scene: Scene, region: Region) -> bool:
    """Whether each element of what is wrong lies on one side of the border, which is quickly tried."""
    return all(region.elements(name, wrong.shape) is not None for name, wrong in scene.failures.items())


def _evidence(claim: Claim, answers: list[Answer], scenes: list[Scene]) -> str:
    """How many cases the claim explains, and on how many its place matters; empty where these are too few."""
    clear = sum(answer is Answer.CLEAR for answer in answers)
    if Answer.RIGHT in answers or clear < _NEEDED:
        return ""
    whole = Claim(claim.semantics, (), claim.scope)
    matters = 0
    for scene in scenes:
        if not claim.region(scene).everything:
            matters += whole.answer(scene) in (Answer.OTHERWISE, Answer.RIGHT)
    if matters < _NEEDED:
        return ""
    return f"it explains {len([a for a in answers if a in (Answer.CLEAR, Answer.EXPLAINED)])} further cases, {clear} of them clearly; in {matters} cases the place matters"
