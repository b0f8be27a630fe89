"""What a campaign on a GPU has beside its workers: processes that compile ahead, a cache of kernels, and counts of where the time goes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.environment import architecture
from flashverify.campaign.gpus import PER_GPU
from flashverify.campaign.kernel_cache import CACHE_VARIABLE, folder_size
from flashverify.campaign.store.stats import Stats, write_stats
from flashverify.campaign.supervisor.compilers import Compilers
from flashverify.campaign.supervisor.mps import Mps, control_program
from flashverify.campaign.supervisor.pool import Pool
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.campaign.supervisor.time_shares import TimeShares

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.campaign.protocol import CaseJudged
    from flashverify.campaign.store.writer import RunStore
    from flashverify.campaign.supervisor.budget import Explaining
    from flashverify.campaign.supervisor.compiled_cases import CompiledCases
    from flashverify.campaign.supervisor.config import CampaignConfig

__all__ = ["Gpu", "processes", "setup_of"]


def setup_of(config: CampaignConfig) -> ProcessSetup:
    """What the workers of a campaign share."""
    return ProcessSetup(
        config.toolkit,
        config.device,
        config.case_limit,
        numerics=config.numerics,
        environment=dict(config.environment),
        gpus=config.gpus,
        memory=config.memory,
        sharers=PER_GPU if config.host is not None else -(-config.workers // max(1, len(config.gpus))),
    )


def processes(
    config: CampaignConfig, store: RunStore, cases: CompiledCases, tell: Callable[[msgspec.Struct], None]
) -> tuple[Pool, Gpu]:
    """The workers of a campaign, and what it has beside them on a GPU; `cases` are those that it judges outside of batches."""
    setup = setup_of(config)
    notes = [store.inflight_path(n) for n in range(config.workers + config.compilers)]
    mps = Mps(control_program(os.environ) if config.mps else None)
    workers = Pool(setup, notes[: config.workers], config.host, mps)
    compilers = Compilers(config, setup, notes[config.workers :], cases, tell)
    return workers, Gpu(config, store, workers, compilers, mps)


class Gpu:
    """Does nothing where kernels are interpreted.

    Args:
        config: of the campaign.
        store: its folder.
        workers: its processes that judge.
        compilers: its processes that compile ahead.
        mps: lets the workers share a GPU.

    Attributes:
        compilers: likewise.
        stats: the counts as they were stored last; None where there are none.
        problems: what the workers do without, in words.
    """

    def __init__(self, config: CampaignConfig, store: RunStore, workers: Pool, compilers: Compilers, mps: Mps) -> None:
        self.compilers, self._store, self._workers, self._mps, self._started = compilers, store, workers, mps, False
        self._compiled = config.device == "cuda"
        self._cache = config.environment.get(CACHE_VARIABLE, "")
        self._shares = TimeShares(config.workers, config.compilers)
        self._begun = time.monotonic()
        self.stats: Stats | None = None
        mps.variables()
        self.problems = (mps.problem,) if mps.problem else ()

    def judged(self, event: CaseJudged) -> None:
        """A case of the campaign was judged."""
        self._shares.judged(event)
        self.compilers.judged(event)

    def tick(self, cases: int, explaining: Explaining, *, over: bool) -> None:
        """Compile ahead, and store the counts every ten seconds.

        Args:
            cases: judged so far.
            explaining: the time that findings take.
            over: nothing more will be judged.
        """
        if self.compilers.readiness is not None and not self._started:
            self._started = True
            self._workers.start()  # the first of them says which GPU there is, where the machine does not
            self.compilers.machine({"gpu_arch": architecture()})
        self.compilers.tick(cases, over=over, alone=not self._workers.slots)
        if self._compiled and self._shares.due(time.monotonic() - self._begun, self._ahead):
            self._write(explaining)

    @property
    def _ahead(self) -> int:
        readiness = self.compilers.readiness
        return 0 if readiness is None else readiness.compiled

    def _write(self, explaining: Explaining, *, size: int = 0) -> None:
        found = self._shares.stats(time.monotonic() - self._begun, ahead=self._ahead, explaining=explaining.spent)
        readiness = self.compilers.readiness
        if readiness is not None:
            found = msgspec.structs.replace(
                found,
                kinds=readiness.ready + self._shares.opened,
                put_off=readiness.put_off,
                dropped=readiness.dropped,
                waiting=readiness.waiting,
            )
        self.stats = msgspec.structs.replace(found, cache=self._cache, cache_bytes=size, mps=self._mps.lasted)
        write_stats(self._store.path, self.stats)

    def finish(self, explaining: Explaining) -> None:
        """Store the counts of the end."""
        if self._compiled:
            self._write(explaining, size=folder_size(self._cache))
