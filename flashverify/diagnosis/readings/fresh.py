"""The cases on which a reading is made and on which it is tested."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.related_cases import grown, variants
from flashverify.diagnosis.settings import other_settings
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials
    from flashverify.subjects.interface import Subject

__all__ = ["LARGEST_READ", "PLAIN", "run_variants", "scenes_of", "tested_on"]

_RUN = 16
_SET = 6
_TAME = 8
"""Variants with usual slopes that are run first."""
_SOME = 0.6
"""Share of the variants that fail, below which sizes are tried that lie at the edge of tiles."""
_FAILING = 4
_LOW_CAPS = ((1.0, 18, 34), (2.0, 5, 60))
"""Softcaps beside which usual logits are neither small nor large, with rows and keys that are added."""
_PROBABILITIES = (0.3, 0.7)
"""Of dropout, where another one is asked about."""
_TIMES = 1.37
"""The usual scale, where another one is asked about."""
LARGEST_READ = 50_000
"""Pairs of rows and keys of all heads up to which a case is read."""
_ROWS, _KEYS = 40, 300
"""Of the case with several tiles of keys, at least."""
PLAIN = ("normal", "ascending", "integers", "v-positive", "v-constant")
"""Regimes whose values show most that is wrong."""


def scenes_of(trials: Trials, scene: Scene, outputs: frozenset[str]) -> list[Scene]:
    """Failing runs in which one of `outputs` is wrong, the one that tells most first, the failing case itself among them.

    They differ in their seeds, and the first ones in their sizes.
    """
    run = list(trials.of(islice(_plainer(trials, scene.case), _TAME), share=0.8))
    more = (make(trials.subject, scene.case) for make in (_large, _launched, _in_parts, _bent, _rescaled))
    rest = () if sum(bool(s.failures) for s in run) > _FAILING else variants(trials.subject, scene.case)
    rest = chain(_set_otherwise(trials.subject, scene.case), rest)
    run += trials.of(chain(_dropped(trials.subject, scene.case), islice(chain(*more, rest), _RUN)), share=0.85)
    if sum(bool(s.failures) for s in run) < _SOME * len(run):  # sizes have a say
        for _ in trials.of(_at_edges(trials.subject, scene.case), share=0.9):
            pass
    failing = [s for s in trials.scenes.values() if s.failures.keys() & outputs and work(s.case) <= LARGEST_READ]
    found: list[Scene] = []
    for size in (True, False):
        for each in sorted(failing, key=lambda s: -_telling(s.case)):
            sizes = {(s.case.seq_q, s.case.seq_k, s.case.heads_q) for s in found}
            if each not in found and (not size or (each.case.seq_q, each.case.seq_k, each.case.heads_q) not in sizes):
                found.append(each)
    found = found[:_FAILING]
    found[1:1] = {
        s.case.dropout: s for s in failing if s.case.dropout != scene.case.dropout and s not in found
    }.values()
    if failing:
        large = [max(failing, key=of) for of in (_keys, _rows, _parts, _group, _others)]
        otherwise = [s for s in failing if _options(s.case) != _options(scene.case)]
        large += sorted(otherwise, key=lambda s: -_telling(s.case))[:1]
        large += [s for s in failing if s.case.scale is not None and scene.case.scale is None][:1]
        large += [s for s in failing if s.case.logits.softcap in {cap for cap, *_ in _LOW_CAPS}][:2]
        found += [each for each in dict.fromkeys(large) if each not in found]
    if scene not in found and scene in failing:
        found.append(scene)
    return found


def run_variants(trials: Trials, scene: Scene) -> None:
    """Runs cases like that of `scene`."""
    for _ in trials.of(islice(variants(trials.subject, scene.case), _RUN), share=0.85):
        pass


def _large(subject: Subject, case: Case) -> Iterator[Case]:
    """A case with several tiles of keys, and wide heads, whose weights are read in few launches."""
    rows, keys = max(0, _ROWS - case.seq_q), max(0, _KEYS - case.seq_k)
    for more, dim in ((rows, 64), (0, 64), (rows, 0), (0, 0)):
        found = grown(case, more, keys, regime="normal", seed=191, dim=dim)
        if found is not None and work(found) <= LARGEST_READ and subject.supports.refusal(found) is None:
            yield found
            return


def _launched(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases with as many launch parameters less: what shows with one of them alone is right there."""
    for name in dict(case.launch or ()):
        launch = tuple((other, value) for other, value in case.launch or () if other != name)
        found = grown(case, 5, 7, regime="normal", seed=181, launch=launch)
        if found is not None and subject.supports.refusal(found) is None:
            yield found


def _in_parts(subject: Subject, case: Case) -> Iterator[Case]:
    """A case of more parts than two, where a launch parameter is the number of parts of the keys: of two each is the other's neighbour on both sides."""
    given = dict(case.launch)
    for name, values in subject.supports.launch:
        several = [value for value in values if isinstance(value, int) and value > 2]
        if not several or not _counts_parts(name):
            continue
        asked = {**given, name: min(several)}
        launch = tuple((other, asked[other]) for other, _ in subject.supports.launch if other in asked)
        found = grown(case, 5, max(0, _KEYS - case.seq_k), regime="normal", seed=183, dim=64, launch=launch)
        if found is not None and subject.supports.refusal(found) is None:
            yield found


def _bent(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases whose usual logits lie on both sides of their cap."""
    for cap, rows, keys in _LOW_CAPS if case.logits.softcap else ():
        low = replace(case, logits=replace(case.logits, softcap=cap))
        found = grown(low, rows, keys, regime="normal", seed=187 + rows, dim=32)
        if found is not None and subject.supports.refusal(found) is None:
            yield found


def _dropped(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases with other probabilities of dropout: half of a draw's values looks like one of its bits."""
    for p in _PROBABILITIES if case.dropout else ():
        found = grown(case, 8, 24, regime="normal", seed=193, dropout=p)
        if found is not None and p != case.dropout and subject.supports.refusal(found) is None:
            yield found


def _rescaled(subject: Subject, case: Case) -> Iterator[Case]:
    """A case with another scale: at the usual one a scale may look like a number in the code."""
    if case.scale is None:
        found = grown(replace(case, scale=_TIMES * case.softmax_scale), 6, 11, regime="normal", seed=185)
        if found is not None and subject.supports.refusal(found) is None:
            yield found


def _plainer(trials: Trials, case: Case) -> Iterator[Case]:
    """Variants with slopes of a usual size, where those of `case` are wild: with these most weights are too small to be read."""
    if case.logits.alibi == "wild":
        yield from variants(trials.subject, replace(case, logits=replace(case.logits, alibi=True)))


def _set_otherwise(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases with other values of their options: at one value a term may look like another one."""
    found = (
        grown(each, 4, 9, regime="normal", seed=160 + n)
        for n, each in enumerate(islice(other_settings(subject.supports, case), _SET))
    )
    yield from (each for each in found if each is not None and subject.supports.refusal(each) is None)


def _at_edges(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases with one key more, or two or three, than an odd number of tiles has: those of one size tell it from the next smaller one."""
    for n, (size, more) in enumerate((size, more) for more in (1, 2, 3) for size in TILES):
        keys = size + more
        while keys < case.seq_k:
            keys += 2 * size
        found = grown(case, 0, keys - case.seq_k, regime="normal", seed=200 + n)
        if found is not None and subject.supports.refusal(found) is None:
            yield found


def _options(case: Case) -> tuple[object, ...]:
    """The values of what modifies logits, and of what a mask shares between keys."""
    mask = case.mask
    return case.logits, mask.blocks and mask.blocks.keys, mask.selection and mask.selection.keys


def _keys(scene: Scene) -> int:
    return scene.case.seq_k


def _rows(scene: Scene) -> int:
    return scene.case.seq_q


def _group(scene: Scene) -> int:
    """Query heads of a kv head."""
    return scene.case.heads_q // scene.case.heads_kv


def _others(scene: Scene) -> int:
    """Sequences and kv heads, of each up to three, which tell the next one from the one before."""
    return min(scene.case.batch, 3) + min(scene.case.heads_kv, 3)


def _parts(scene: Scene) -> int:
    """Parts of the keys that the case asks for."""
    return max((value for name, value in scene.case.launch if _counts_parts(name)), default=0)


def _counts_parts(name: str) -> bool:
    """Whether a launch parameter is a number of parts of the keys."""
    return any(word in name for word in ("split", "part", "chunk"))


def tested_on(scenes: Sequence[Scene]) -> bool:
    """Whether what holds on all of `scenes` was tested: one of them has another seed than the first one and other sizes."""
    return len(scenes) > 1 and any(
        scene.case.values.seed != scenes[0].case.values.seed and _sizes(scene.case) != _sizes(scenes[0].case)
        for scene in scenes[1:]
    )


def _sizes(case: Case) -> tuple[int, ...]:
    return case.batch, case.heads_q, case.seq_q, case.seq_k, case.dim_qk


def _telling(case: Case) -> float:
    """How much a case tells: many rows, keys, heads and sequences, plain values, and few pairs."""
    sequences = case.batch if case.mask.packed is None else len(case.mask.packed.lengths())
    several = (
        sequences > 1,
        sequences > 2,
        case.heads_kv > 2,
        case.heads_kv > 1,
        case.heads_q > case.heads_kv,
        case.seq_q > 2,
        case.seq_k > 2,
    )
    large = (case.seq_q > 16, case.seq_k > 16, case.seq_k > 64, case.seq_q > 64)
    plain = case.values.regime in PLAIN
    launches = -(-case.seq_k // case.dim_v)
    return sum(several) + sum(large) + 2 * plain - 0.4 * math.log10(1 + work(case)) - 0.25 * launches
