"""The cases on which a reading is made and on which it is tested."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["LARGEST_READ", "PLAIN", "run_variants", "scenes_of", "tested_on"]

_RUN = 16
_FAILING = 5
LARGEST_READ = 50_000
"""Pairs of rows and keys of all heads up to which a case is read."""
PLAIN = ("normal", "ascending", "integers", "v-positive", "v-constant")
"""Regimes whose values show most that is wrong."""


def scenes_of(trials: Trials, scene: Scene, outputs: frozenset[str]) -> list[Scene]:
    """Failing runs in which one of `outputs` is wrong, the one that tells most first, the failing case itself among them.

    They differ in their seeds, and the first ones in their sizes.
    """
    run_variants(trials, scene)
    failing = [s for s in trials.scenes.values() if s.failures.keys() & outputs and work(s.case) <= LARGEST_READ]
    found: list[Scene] = []
    for size in (True, False):
        for each in sorted(failing, key=lambda s: -_telling(s.case)):
            sizes = {(s.case.seq_q, s.case.seq_k, s.case.heads_q) for s in found}
            if each not in found and (not size or (each.case.seq_q, each.case.seq_k, each.case.heads_q) not in sizes):
                found.append(each)
    found = found[:_FAILING]
    if scene not in found and scene in failing:
        found.append(scene)
    return found


def run_variants(trials: Trials, scene: Scene) -> None:
    """Runs cases like that of `scene`."""
    for _ in trials.of(islice(variants(trials.subject, scene.case), _RUN), share=0.85):
        pass


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
    several = (sequences > 1, case.heads_kv > 1, case.heads_q > case.heads_kv, case.seq_q > 2, case.seq_k > 2)
    large = (case.seq_q > 16, case.seq_k > 16, case.seq_k > 64, case.seq_q > 64)
    plain = case.values.regime in PLAIN
    launches = -(-case.seq_k // case.dim_v)
    return sum(several) + sum(large) + 2 * plain - 0.4 * math.log10(1 + work(case)) - 0.1 * launches
