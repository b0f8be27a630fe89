"""Climbing towards the bound: neighbours of the cases that came closest to it, output by output and mode by mode.

A neighbour differs in values, lengths, scale or gradients, never in what a kernel is compiled anew for: dtype, head dims, parts of
the mask, modifications of the logits, storage, launch parameters.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from flashverify.case.case import REGIMES, Case
from flashverify.case.changes import change
from flashverify.judge.ratios import ratios

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.judge.verdict import CaseResult

__all__ = ["Climber"]

_SEEDS = 2**16
_SCALES = (None, 1.0, 0.125)
_GRADS = ("dense", "expanded", "transposed")


class Climber:
    """The closest case of each output and mode so far, and neighbours of them.

    Args:
        seed: of the choices; the same results in the same order give the same neighbours.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._best: dict[str, tuple[float, Case]] = {}
        self._turn = 0

    def note(self, case: Case, result: CaseResult) -> None:
        """Remember where this case came closer than any before."""
        self.remember(case, ratios(result))

    def remember(self, case: Case, found: Mapping[str, float]) -> None:
        """The same for a case whose ratios are known."""
        for label, ratio in found.items():
            if ratio > self._best.get(label, (0.0, case))[0]:
                self._best[label] = (ratio, case)

    def propose(self) -> Case | None:
        """A neighbour of the closest case of the next label, labels in turn; None where this one has none, or nothing was noted."""
        if not self._best:
            return None
        label = sorted(self._best)[self._turn % len(self._best)]
        self._turn += 1
        return self._neighbour(self._best[label][1])

    def _neighbour(self, case: Case) -> Case | None:
        pick, values, grad = self._random, case.values, case.grad
        seed = pick.randrange(_SEEDS)
        kind = pick.choice(("seed", "seed", "seed", "regime", "lengths", "scale", "grad", "mate"))
        if kind == "seed":
            return change(case, values=replace(values, seed=seed, edits=values.edits if pick.random() < 0.5 else ()))
        if kind == "regime":
            regimes, regime = values.regimes, pick.choice(REGIMES)
            if values.mixed:  # of one head in turn
                place = pick.randrange(len(regimes))
                regime = ",".join((*regimes[:place], regime, *regimes[place + 1 :]))
            return change(case, values=replace(values, regime=regime, seed=seed))
        if kind == "lengths":
            longest = max(case.seq_q, case.seq_k, 1)
            return change(case, seq_q=pick.randint(1, longest), seq_k=pick.randint(1, longest))
        if kind == "scale":
            return change(case, scale=pick.choice(_SCALES), values=replace(values, seed=seed))
        if kind == "grad":
            changed = replace(grad, do=pick.choice(_GRADS), dlse=not grad.dlse)
            return change(case, grad=changed, values=replace(values, seed=seed)) if grad.backward else None
        mate = self._best[pick.choice(sorted(self._best))][1]  # the values of one, everything else of the other
        return change(case, values=replace(mate.values, edits=()), scale=mate.scale)
