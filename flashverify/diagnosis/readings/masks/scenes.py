"""The cases whose masks are counted, failing ones of many shapes, and right ones that a rule may not speak of."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.case.masks.mask import Mask
from flashverify.diagnosis.neighbours import resized, simplifications
from flashverify.diagnosis.readings.fresh import LARGEST_READ, PLAIN, run_variants
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.settings import other_settings
from flashverify.diagnosis.stretching import with_sides
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["mask_scenes", "right_scenes"]

_COUNTED = 6
_RIGHT = 24
_WITHOUT = 3
_SET = 5
_SIZES = ((40, 0), (120, 0), (0, 128), (18, 34), (2, 134))
"""Rows and keys that are added to a case: many of one side, of both, and many keys for few rows."""

_SIDES, _WIDE = (45, 30), (150, 170)
"""Sides of a window that lie on no edge of a tile and reach over several, and the rows and keys that are added to a case with them."""


def mask_scenes(trials: Trials, scene: Scene, outputs: frozenset[str]) -> list[Scene]:
    """Failing runs in which one of `outputs` is wrong: large ones, those of other heads, groups and sequences, small ones, and `scene`."""
    run_variants(trials, scene)
    for _ in trials.of(_more(trials, scene.case), share=0.87):
        pass
    alike = [s for s in trials.scenes.values() if _tiled_alike(s.case, scene.case) and work(s.case) <= LARGEST_READ]
    failing = [s for s in alike if s.failures.keys() & outputs]
    plain = [s for s in failing if s.case.values.regime in PLAIN] or failing
    found: list[Scene] = []
    for most in (
        lambda s: (_several(s.case), s.case.seq_q * s.case.seq_k),
        lambda s: (s.case.seq_k, -work(s.case)),
        lambda s: (s.case.heads_q > s.case.heads_kv, s.case.heads_q // s.case.heads_kv, -work(s.case)),
        lambda s: (s.case.seq_q, -work(s.case)),
        lambda s: (0 if s.case.mask.selection is None else s.case.mask.selection.entries, -work(s.case)),
    ):
        left = [s for s in plain if not any(_sizes(s.case) == _sizes(other.case) for other in found)]
        if left:
            found.append(max(left, key=most))
    for each in sorted(failing, key=lambda s: (s.case.values.regime not in PLAIN, work(s.case))):
        if (
            len(found) < _COUNTED - 1
            and each is not scene
            and not any(_sizes(each.case) == _sizes(f.case) for f in found)
        ):
            found.append(each)
    if scene not in found and scene in failing:
        found.append(scene)
    return sorted(found, key=lambda s: (not _several(s.case), work(s.case)))


def right_scenes(trials: Trials, like: Scene) -> list[Scene]:
    """Runs with pairs and without a failure, whose masks are taken to be as declared: the larger ones of plain values."""
    alike = [s for s in trials.scenes.values() if _tiled_alike(s.case, like.case) and s.case.seq_q and s.case.seq_k]
    right = [s for s in alike if not s.failures and s.case.values.regime in PLAIN]
    return sorted((s for s in right if work(s.case) <= LARGEST_READ), key=lambda s: -work(s.case))[:_RIGHT]


def _tiled_alike(case: Case, other: Case) -> bool:
    """Whether nothing that the case says of tiles and splits differs."""
    return (case.launch, case.storage.page_size) == (other.launch, other.storage.page_size)


def _several(case: Case) -> int:
    sequences = case.batch if case.mask.packed is None else len(case.mask.packed.lengths())
    many = (sequences > 2) + (case.heads_kv > 2)  # of two each is the next one and the one before
    return many + (sequences > 1) + (case.heads_kv > 1) + (case.heads_q > case.heads_kv)


def _sizes(case: Case) -> tuple[int, ...]:
    return case.seq_q, case.seq_k, case.heads_q, case.heads_kv, case.batch


def _more(trials: Trials, case: Case) -> Iterator[Case]:
    """Cases with many rows or many keys, with larger groups of heads, and without parts of the mask."""
    supports, group = trials.subject.supports, case.heads_q // case.heads_kv
    found = [grown(case, *more, regime="normal", seed=100 + n) for n, more in enumerate(_SIZES)]
    if case.mask.window is not None:
        found.append(grown(with_sides(case, _SIDES), *_WIDE, regime="normal", seed=114))
    if group > 1:
        found.append(grown(case, 18, 34, regime="normal", seed=111, heads_q=(group + 1) * case.heads_kv))
    heads = {"heads_q": 3 * max(group, 2), "heads_kv": 3} if case.heads_q > 1 else {}
    if heads or case.batch > 1:
        found.append(grown(case, 8, 14, regime="normal", seed=112, batch=3 if case.batch > 1 else 1, **heads))
    found += [
        resized(case, *sizes)
        for sizes in ((3, 3), (case.seq_q, case.seq_k // 2 + 1), (case.seq_q, case.seq_k * 3 // 4 + 1))
    ]
    if case.mask.selection is not None:  # longer lists
        lists = case.mask.selection
        longer = [replace(case.mask, selection=replace(lists, entries=lists.entries + more)) for more in (1, 2)]
        found += [grown(replace(case, mask=mask), 18, 34, regime="normal", seed=113) for mask in longer]
    bare = change(case, mask=Mask())
    without = [each for each in simplifications(supports, case) if len(each.mask.parts()) < len(case.mask.parts())]
    if bare is not None and len(case.mask.parts()) > 1:
        without.insert(0, bare)
    found += [
        grown(each, *more, regime="normal", seed=120 + n)
        for n, each in enumerate(islice(without, _WITHOUT))
        for more in ((5, 67), (2, 140))
    ]
    found += [
        grown(each, 5, 67, regime="normal", seed=140 + n)
        for n, each in enumerate(islice(other_settings(supports, case), _SET))
    ]
    yield from (each for each in found if each is not None and supports.refusal(each) is None)
