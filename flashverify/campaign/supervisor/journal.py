"""The journal of a campaign: what was handed out, what of it was judged, and what of that is on the disk."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flashverify.campaign.store.origins import batch_of
from flashverify.campaign.store.resume import Alike
from flashverify.campaign.supervisor.batches import Batches
from flashverify.campaign.supervisor.compiled_cases import CompiledCases
from flashverify.campaign.supervisor.lists import CORPUS, KEPT, MATRIX, Lists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flashverify.campaign.store.writer import RunStore
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.judge.verdict import CaseResult

__all__ = ["Journal"]


class Journal:
    """Reads from the store what a run had handed out, and notes what is handed out from now on.

    Attributes:
        lists: cases that are judged before any is drawn.
        batches: of draws.
        compiled: cases that are judged outside of batches because they were compiled ahead.
        unmarked: results that are marked with neither, as version 0.1.0 stored them.
        before: seconds of the calls that are resumed.

    Args:
        config: of the campaign.
        store: the run folder.
        stored: the results of a run that is resumed, with the specs of their subjects, or several together.
        sealed: whether results are marked with where they belong.
    """

    def __init__(
        self,
        config: CampaignConfig,
        store: RunStore,
        stored: Iterable[tuple[CaseResult, str] | Alike] = (),
        *,
        sealed: bool = True,
    ) -> None:
        self._config, self._store = config, store
        claims = store.claims()
        self.before = claims.seconds
        self._elapsed: Callable[[], float] = lambda: self.before
        self.batches = Batches(config.batch, claims, len(config.subjects), config.shard, fixed=not config.ahead)
        self.compiled = CompiledCases(claims.waiting)
        self.unmarked = 0
        judged: dict[str, set[str]] = {}
        over = claims.open is None and claims.batches > 0
        for each in stored:
            if isinstance(each, Alike):
                self._resume(each.origin, each.cases, each.count, each.results, judged)
                continue
            result, spec = each
            if result.origin or sealed or over:
                self._resume(result.origin, (result.case,), 1, partial(iter, (result,)), judged)
            else:
                for kind in (KEPT, CORPUS, MATRIX):
                    judged.setdefault(f"{kind} {spec}", set()).add(result.case)
        self.lists = Lists(config, store.lists(), judged, over=over)
        self.note_lists()

    def _resume(
        self,
        origin: str,
        cases: Iterable[str],
        count: int,
        results: Callable[[], Iterable[CaseResult]],
        judged: dict[str, set[str]],
    ) -> None:
        """Stored results that are marked alike; `judged` gets the cases of lists, and `results` is asked where more than their number counts."""
        number = batch_of(origin)
        if number is not None:
            self.batches.resumed(number, count, results)
        elif (of := self.compiled.spec_of(origin)) is not None:
            for case in cases:
                self.compiled.resumed(of, case)
        elif origin:
            judged.setdefault(origin, set()).update(cases)
        else:
            self.unmarked += count

    def clock(self, elapsed: Callable[[], float]) -> None:
        """Where the seconds of the run are read from."""
        self._elapsed = elapsed

    def spec_of(self, number: int) -> str:
        """The subject of a batch."""
        return self._config.subjects[number % len(self._config.subjects)]

    def note_lists(self) -> None:
        """Before a listed case is handed out."""
        self._store.write_lists(self.lists.noted())

    def note_batches(self) -> None:
        """Before a batch is handed out, and at the end."""
        self._store.claim(self.batches.claims(self._elapsed(), self.compiled.noted()))
