"""A case as two runs saw it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.report.columns import VOID

if TYPE_CHECKING:
    from flashverify.comparing.loaded import Loaded
    from flashverify.report.columns import Identity, Place

__all__ = ["Pair", "Seen"]


@dataclass(frozen=True)
class Seen:
    """What a run said of a case."""

    run: Loaded
    row: int

    @functools.cached_property
    def ratios(self) -> dict[Place, float]:
        """The worst ratio of each output that has judged elements."""
        run, places = self.run, self.run.layouts[self.run.layout[self.row]]
        values = run.values[run.starts[self.row] : run.starts[self.row + 1]].tolist()
        return {place: value for place, value in zip(places, values, strict=True) if value != VOID}

    @functools.cached_property
    def failures(self) -> frozenset[Identity]:
        """What failed; an output beyond its bound is a failure, whatever the verdicts say."""
        beyond = {("accuracy", "bound", output) for (output, _), ratio in self.ratios.items() if not ratio <= 1}
        return frozenset(beyond.union(self.run.failures[self.run.failed[self.row]]))

    def message(self, failure: Identity) -> str:
        """What is said of a failure."""
        for verdict in self.run.result(self.row).failures[::-1]:
            if (verdict.check, verdict.error, verdict.output) == failure:
                return verdict.message
        mode = [mode for (output, mode), ratio in self.ratios.items() if output == failure[2] and not ratio <= 1][-1]
        return f"{failure[2]} is outside its bound, {mode}"


@dataclass(frozen=True)
class Pair:
    """A case that both runs hold; `subject` is its name in the later one."""

    before: Seen
    after: Seen

    @property
    def subject(self) -> str:
        """Its name in the later run."""
        run = self.after.run
        return run.subjects[int(run.subject[self.after.row])]

    @property
    def dtype(self) -> str:
        """As the axes of a report word it."""
        run = self.after.run
        return run.dtypes[int(run.dtype[self.after.row])]

    @functools.cached_property
    def case(self) -> str:
        """Its text."""
        return self.after.run.result(self.after.row).case
