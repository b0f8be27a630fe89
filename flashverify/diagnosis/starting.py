"""Cases that tell more than the failing one: with usual values of its options, without padding, in fp32, or small ones with a launch that shows the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.diagnosis.grown import grown
from flashverify.diagnosis.neighbours import resized
from flashverify.diagnosis.related_cases import peaked, variants
from flashverify.diagnosis.settings import usual_settings
from flashverify.diagnosis.trials import work
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["and_the_first", "clearest", "in_fp32", "smaller_with_a_launch", "with_usual_settings", "with_zeros"]

_UNPADDED, _SHARE_UNPADDED = 6, 0.3
"""Cases with zeros for padding that must be right for a failure to be one of padding, and the share of the time for them."""
_NOT_FINITE = ("nan", "inf", "-inf", "mixed")
"""Paddings that reach what reads them though it multiplies them by 0."""
_OTHER_VALUES = (81, 82)
"""Seeds of values, beside its own, that a case in fp32 is asked with."""

_SHARE_FIRST = 0.8
"""Of the time, after which the case that was seen first is not run."""
_SHARE = 0.5
"""Of the time, after which no case of either kind is tried: the large case may have taken most of it."""
_LARGE = 12_000
"""Pairs of rows and keys, over all heads, from which on a small case with other launch parameters is looked for."""
_MODERATE, _CHANNELS = 70, 16
"""Rows and keys, and channels, of a case that stands for a large one: a tile of 64 ends within them."""
_ROWS, _KEYS = 4, 290
"""Of such a case, at most."""


def and_the_first(trials: Trials, starts: list[Scene], first: Case | None) -> Iterator[Scene]:
    """The starts, then a run of the case that was seen first, if it fails; it joins them.

    It is run once the others gave no name, as it is often so large that it takes as long as tens of small ones. A calm case of a moderate size
    stands for it if that fails in the same outputs.
    """
    yield from tuple(starts)
    if first is None or any(start.case in (first, *_moderate(first)) for start in starts):
        return
    if starts and not trials.known(first) and trials.hindrance(first, _SHARE_FIRST):
        return
    found = trials.scene(first)
    if found is not None and found.failures:
        found = _calmest(trials, found, _moderate(first))
        starts.append(found)
        yield found


def _calmest(trials: Trials, scene: Scene, cases: Iterable[Case]) -> Scene:
    """A run of the first of `cases` that fails in the same outputs; the given one where none does.

    A run whose O or LSE is wrong stands for none whose forward is right: what its forward does is another mistake.
    """
    shown = scene.failures.keys()
    whole = bool(shown & set(FORWARD))
    runs = trials.of(cases, share=_SHARE_FIRST)
    alike = (run for run in runs if run.failures.keys() >= shown and (whole or not run.failures.keys() & set(FORWARD)))
    return next(alike, scene)


def _calm(case: Case) -> Case:
    """The same case with usual values and factors: their bounds are small, so that most wrong semantics are refuted without any."""
    values = replace(case.values, regime="normal", edits=())
    return replace(case, values=values, scale=None, logits=replace(case.logits, alibi=bool(case.logits.alibi)))


def _moderate(case: Case) -> Iterator[Case]:
    """Calm cases in fp32 that stand for a large one: with few rows, keys and channels, and as large as it is."""
    calm = _calm(replace(case, dtype="fp32", precision="ieee"))
    small = resized(calm, min(case.seq_q, _MODERATE), min(case.seq_k, _MODERATE))
    dims = {"dim_qk": min(case.dim_qk, _CHANNELS), "dim_v": min(case.dim_v, _CHANNELS)}
    fewer = None if small is None else change(small, **dims)
    yield from (each for each in (fewer, small, calm) if each is not None)


def with_usual_settings(trials: Trials, scene: Scene) -> Scene | None:
    """A run of a larger case whose pages and blocks hold several keys, if it fails in the same outputs and the case has not such ones."""
    runs = trials.of(usual_settings(trials.subject.supports, scene.case), share=_SHARE)
    return next((found for found in runs if found.failures.keys() >= scene.failures.keys()), None)


def smaller_with_a_launch(trials: Trials, scene: Scene) -> Scene | None:
    """A run of a small case with launch parameters that fails in the same outputs, in place of a large one without."""
    case = scene.case
    if case.launch or work(case) < _LARGE:
        return None
    runs = trials.of(_launched(trials.subject.supports, case), share=_SHARE)
    return next((found for found in runs if found.failures.keys() >= scene.failures.keys()), None)


def _launched(supports: Supports, case: Case) -> Iterator[Case]:
    small = resized(case, min(case.seq_q, _ROWS), min(case.seq_k, _KEYS))
    for name, values in supports.launch if small is not None else ():
        for value in sorted(values, key=lambda x: -x if isinstance(x, int) else 0):
            assert small is not None
            found = grown(small, 0, 0, regime="normal", seed=case.values.seed, launch=((name, value),))
            if found is not None and supports.refusal(found) is None:
                yield found


def with_zeros(trials: Trials, scene: Scene) -> Scene | None:
    """A failing run with zeros outside the lengths, of the same case or of one like it; the run itself if its padding is finite. None where none fails."""
    case = scene.case
    if case.storage.padding not in _NOT_FINITE:
        return scene
    plain = replace(case, storage=replace(case.storage, padding="zero"))
    found = trials.scene(plain)
    if found is not None and found.failures:
        return found
    cases = islice(variants(trials.subject, plain), _UNPADDED)  # what reads elsewhere meets padding by chance
    return next((other for other in trials.of(cases, share=_SHARE_UNPADDED) if other.failures), None)


def clearest(trials: Trials, scene: Scene) -> tuple[Scene, str]:
    """The run to explain, one in fp32 with exact products and usual values if that fails, and what is to be said where fp32 is right."""
    twin = in_fp32(trials, scene)
    if twin is None or twin.failures:
        shown = twin or scene
        return _calmest(trials, shown, [_calm(shown.case)]), ""
    return scene, f" The same case is right in fp32: the defect is one of {scene.case.dtype}."


def in_fp32(trials: Trials, scene: Scene) -> Scene | None:
    """A run of the same case in fp32 with exact products, one that fails if there is one; None where it is that already, or the subject refuses it.

    Few values may be right in fp32 by chance: then others are tried.
    """
    same = replace(scene.case, dtype="fp32", precision="ieee")
    twin = None if same == scene.case else trials.scene(same)
    if twin is None or twin.failures:
        return twin
    for regime in dict.fromkeys((same.values.regime, "normal")):
        for seed in _OTHER_VALUES:
            other = trials.scene(replace(same, values=replace(same.values, regime=regime, seed=seed, edits=())))
            if other is not None and other.failures:
                return other
    for steep in peaked(trials.subject, same):  # values of a regime depend on what the dtype holds
        other = trials.scene(steep)
        if other is not None and other.failures:
            return other
    return twin
