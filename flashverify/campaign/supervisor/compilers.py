"""The processes that compile ahead of the workers of a search on a GPU. They see no GPU themselves."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.environment import capability
from flashverify.campaign.kernel_cache import CACHE_VARIABLE
from flashverify.campaign.protocol import Prepare, Prepared, PutOff, WorkerFailed
from flashverify.campaign.supervisor.events import WorkerLost
from flashverify.campaign.supervisor.known_kinds import KnownKinds
from flashverify.campaign.supervisor.pool import Pool
from flashverify.campaign.supervisor.probe import START_LIMIT
from flashverify.campaign.supervisor.readiness import Readiness
from flashverify.child_process import VISIBLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flashverify.campaign.protocol import CaseJudged
    from flashverify.campaign.supervisor.compiled_cases import CompiledCases
    from flashverify.campaign.supervisor.config import CampaignConfig
    from flashverify.campaign.supervisor.process import ProcessSetup
    from flashverify.campaign.supervisor.slots import Loss

__all__ = ["Compilers"]

_LIMIT = 600.0
"""Seconds that the kernels of one case may take."""
_STORED_EVERY = 10.0
"""Seconds between two times that the kinds are written down."""
_LOSSES = 20
"""Processes that may be lost before nothing is compiled ahead any more."""


class Compilers:
    """Compiles what `Readiness` names, once the architecture of the GPU is known.

    Args:
        config: of the campaign; it says how many processes compile, none where kernels are interpreted.
        setup: of the workers.
        notes: where each process announces its case.
        cases: those that are judged outside of batches.
        tell: is told of processes that are lost.

    Attributes:
        readiness: None where nothing is compiled ahead.
    """

    def __init__(
        self,
        config: CampaignConfig,
        setup: ProcessSetup,
        notes: list[Path],
        cases: CompiledCases,
        tell: Callable[[msgspec.Struct], None],
    ) -> None:
        self._known = KnownKinds(config.environment.get(CACHE_VARIABLE, "") if config.ahead else "")
        known = {spec: self._known.of(spec) for spec in config.subjects}
        self.readiness = Readiness(config.subjects, config.seed, cases, known) if config.ahead else None
        self._config, self._setup, self._tell = config, setup, tell
        self.notes = notes if config.ahead else []
        self._pool: Pool | None = None
        self._begun = self._stored = time.monotonic()
        self._losses, self._closed = 0, False
        self._again: deque[Prepare] = deque()

    def machine(self, found: dict[str, str]) -> None:
        """A worker told of its GPU: compiling begins, with the first one."""
        ahead = capability(found.get("gpu_arch", ""))
        if self.readiness is None or self._closed or self._pool is not None or not ahead:
            return
        setup = msgspec.structs.replace(
            self._setup,
            case_limit=_LIMIT,
            environment=self._setup.environment | {VISIBLE: ""},
            gpus=(),
            ahead=ahead,
        )
        host = self._config.host
        self._pool = Pool(setup, self.notes, host.compiling() if host is not None else None)
        self._begun = time.monotonic()

    def waits(self, event: PutOff) -> None:
        """A worker put a case off."""
        if self.readiness is not None and event.left:
            self.readiness.leave()
        elif self.readiness is not None:
            self.readiness.wait(event.subject, event.case)

    def judged(self, event: CaseJudged) -> None:
        """A case was judged, with or without all its checks."""
        if self.readiness is None:
            return
        self.readiness.judged(event.subject)
        if event.result.unasked:
            self.readiness.want(event.subject, event.result.case)

    def tick(self, judged: int, *, over: bool, alone: bool = False) -> None:
        """Hand out what is to be compiled and take in what was; never waits.

        Args:
            judged: cases so far.
            over: nothing more will be judged.
            alone: no worker runs.
        """
        readiness, pool = self.readiness, self._pool
        if readiness is None or self._closed:
            return
        if pool is None:
            if alone or time.monotonic() - self._begun > START_LIMIT:
                self._give_up(self._config.subjects)  # no worker can say which GPU it has
            return
        if over or readiness.off >= set(self._config.subjects):
            self.close()
            return
        for number in pool.free():
            task = self._again.popleft() if self._again else readiness.next(judged, time.monotonic() - self._begun)
            if task is None:
                break
            pool.give(number, task)
        for slot, event in pool.events(0.0) if pool.slots else ():
            if isinstance(event, Prepared):
                readiness.prepared(event)
                self._remember(event)
                pool.done(slot)
            elif isinstance(event, WorkerFailed):
                slot.failure = event.message
        for loss in pool.losses(None):
            self._lost(loss, readiness)

    def _remember(self, event: Prepared) -> None:
        """Keep for later searches that a kind is compiled."""
        if event.kind >= 0 and event.cases and event.launches:
            self._known.add(event.subject, event.kind)
        if time.monotonic() - self._stored > _STORED_EVERY:
            self._stored = time.monotonic()
            self._known.store()

    def _lost(self, loss: Loss, readiness: Readiness) -> None:
        """A process is gone: what it had goes on, unless it says that it cannot compile, or too many are lost."""
        if loss.outage is not None:
            self._again.extend([loss.task] if isinstance(loss.task, Prepare) else [])
            return
        self._losses += 1
        task, note = loss.task, loss.in_flight
        reason = f"compiling ahead: {loss.failure or loss.verdict.message}"
        self._tell(WorkerLost(self._config.workers + loss.worker, reason, note.case if note else "", loss.printed))
        if not isinstance(task, Prepare) or self._losses > _LOSSES:
            self._give_up(self._config.subjects)
            return
        readiness.lost(task, note.case if note is not None else None)
        if loss.failure:
            self._give_up((task.subject,))

    def _give_up(self, specs: tuple[str, ...]) -> None:
        for spec in specs:
            if self.readiness is not None:
                self.readiness.give_up(spec)

    def close(self) -> None:
        """End the processes."""
        self._known.store()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._closed = True
