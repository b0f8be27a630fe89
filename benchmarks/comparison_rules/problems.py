"""The problems of a run: per mutant and kind of inputs the same list every time."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from comparison_rules.inputs import INPUTS, own_cases
from comparison_rules.values import register
from comparison_rules.work import OURS
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.case import Case
    from flashverify.mutants.mutant import Mutant

__all__ = ["Problems"]

_DRAWN = 250
"""Cases of a batch of ours."""
_BATCHES = 8
"""Two features at once are rare; most lists are full after the first batch."""
_ATTEMPTS = 5
"""Seeds that a batch may take (`flashverify.campaign.worker.search.draw`)."""


class Problems:
    """Draws the problems; mutants of one subject with the same needs share theirs.

    Args:
        count: problems per mutant and kind of inputs.
        seed: of our draws.
        only: kinds of inputs; None is all.

    Raises:
        UsageError: a kind of inputs is unknown.
    """

    def __init__(self, count: int, seed: int, only: Sequence[str] | None = None) -> None:
        names = (*(inputs.name for inputs in INPUTS), OURS)
        for name in only or ():
            if name not in names:
                raise UsageError(f"inputs={name!r} is not accepted: one of {', '.join(names)}")
        register()
        self.inputs = tuple(name for name in names if only is None or name in only)
        self._count, self._seed = count, seed
        self._lists: dict[tuple[str, str, tuple[str, ...]], tuple[str, ...]] = {}
        self._batches: dict[tuple[str, int], tuple[Case, ...]] = {}

    def of(self, mutant: Mutant, inputs: str) -> tuple[str, ...]:
        """The texts of the cases that the mutant is given; fewer, or none, where the inputs have no more that concern it."""
        key = (inputs, mutant.subject, mutant.needs)
        if key not in self._lists:
            self._lists[key] = tuple(str(case) for case in self._draw(mutant, inputs))
        return self._lists[key]

    def _draw(self, mutant: Mutant, inputs: str) -> list[Case]:
        with self._toolkit.open("cpu", plain=False, numerics="ieee"):
            if inputs != OURS:
                known = next(one for one in INPUTS if one.name == inputs)
                return own_cases(known, self._toolkit.load(mutant.subject), mutant, self._count)
            batches = chain.from_iterable(self._batch(mutant.subject, number) for number in range(_BATCHES))
            found: dict[Case, None] = {}
            for case in filter(mutant.concerns, batches):
                found[case] = None
                if len(found) == self._count:
                    break
            return list(found)

    def _batch(self, subject: str, number: int) -> tuple[Case, ...]:
        from flashverify.campaign.worker.search import draw

        if (subject, number) not in self._batches:
            strategy = self._toolkit.strategy(self._toolkit.load(subject), "cpu")
            start = (self._seed * _BATCHES + number) * _ATTEMPTS
            self._batches[subject, number] = draw(strategy, _DRAWN, start)
        return self._batches[subject, number]

    @cached_property
    def _toolkit(self) -> Any:
        from flashverify.campaign.toolkit import bundled

        return bundled
