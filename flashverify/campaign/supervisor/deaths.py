"""What follows when a worker dies, hangs or grows too large: its case is judged again alone, the rest of its task goes on.

A signal from outside, a system that runs out of memory or a GPU that fails kills a worker over a case that is right. So a death is no
finding. The case goes to a fresh process that has judged nothing, on another GPU where there is one. If that dies too, the case is to
blame; if not, its verdicts count and the GPU of the first death comes under suspicion.

A place of a cluster that loses all of its workers at once blames no case: what they had goes on, and the outage counts as one loss. Workers
that share the context of a GPU end together likewise (`Mps`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign import environment
from flashverify.campaign.gpus import gpu_words
from flashverify.campaign.protocol import Batch, Chunk
from flashverify.campaign.supervisor.events import GpuSetAside, WorkerLost
from flashverify.campaign.supervisor.gpu_health import GpuHealth
from flashverify.campaign.supervisor.suspects import Suspects
from flashverify.errors import NoVerdictError
from flashverify.judge.verdict import CaseResult, Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from flashverify.campaign.supervisor.config import CampaignConfig
    from flashverify.campaign.supervisor.hosts import Outage
    from flashverify.campaign.supervisor.ledger import Ledger
    from flashverify.campaign.supervisor.pool import Pool
    from flashverify.campaign.supervisor.schedule import Schedule
    from flashverify.campaign.supervisor.slots import Loss, Slot
    from flashverify.campaign.supervisor.suspects import Suspect

__all__ = ["Deaths"]


class Deaths:
    """Judges cases again over which a worker died, and ends a campaign whose workers do not survive.

    Args:
        config: of the campaign.
        ledger: of the campaign.
        schedule: gets the rest of a task.
        pool: the workers.
        keep: stores a result, with the spec of its subject.
        freed: is told the number of a worker that has its task no more, and whether the task may be why (`blamed`).
        tell: called with `WorkerLost` and `GpuSetAside`.

    Attributes:
        ended: why the campaign is to end, as `Summary.stopped` has it; empty while it goes on.
    """

    def __init__(
        self,
        config: CampaignConfig,
        ledger: Ledger,
        schedule: Schedule,
        pool: Pool,
        keep: Callable[[CaseResult, str], None],
        freed: Callable[..., None],
        tell: Callable[[msgspec.Struct], None],
    ) -> None:
        self._config, self._ledger, self._schedule, self._pool = config, ledger, schedule, pool
        self._keep, self._freed, self._tell = keep, freed, tell
        self._suspects = Suspects()
        self._gpus = GpuHealth(config.gpus, config.workers)
        self._fruitless = 0  # workers lost since a case was last judged
        self._again = 0  # workers lost over a case that had killed one before
        self._outages: set[Outage] = set()
        self.ended = ""

    @property
    def wait(self) -> bool:
        """Whether a case is still to be judged again."""
        return self._suspects.wait

    def hand_out(self) -> None:
        """Give what waits to fresh processes, before anything else is handed out."""
        for number in self._pool.vacant() if self._suspects.wait else ():
            if (suspect := self._suspects.take(number, self._pool.gpu(number), self._gpus.usable)) is not None:
                self._pool.give(number, suspect.alone(), fresh=True)

    def judged(self, slot: Slot) -> Suspect | None:
        """A worker judged a case; the suspect that this is, or None. `survived` is called when the result is stored."""
        self._fruitless = 0
        self._gpus.judged(self._pool.gpu(slot.number))
        return self._suspects.taken(slot.number)

    def survived(self, suspect: Suspect) -> None:
        """A case over which a worker died was judged by another one: it is not to blame, and its task goes on."""
        if suspect.task is not None and suspect.counts:
            self._schedule.lost(suspect.task, suspect.answered + 1)
        self._strike(suspect.gpu, suspect.reason)

    def lost(self, loss: Loss) -> None:
        """A worker is gone."""
        if loss.outage is not None and not loss.abandoned:
            self._out(loss, loss.outage)
            return
        suspect, note = self._suspects.taken(loss.worker), loss.in_flight
        self._freed(loss.worker)
        if loss.abandoned:
            return
        self._ledger.restarts += 1
        self._fruitless += 1
        goes_on, reason = True, loss.verdict.message
        if loss.shared:
            others, again = self._pool.separate()
            for other in others:
                self._hand_back(other)
            after = (
                "those that shared its context start again"
                if again
                else "from here on each worker has a context of its own"
            )
            reason = f"{reason}; {after}"
        if suspect is not None and note is not None and not loss.failure:
            goes_on = self._convict(suspect, loss)
            reason = f"{reason}, alone with a case that another worker had died over"
        elif suspect is not None:
            self._suspects.again(suspect)
        elif note is not None and not loss.failure:
            self._suspects.add(loss, note)
            reason = f"{reason}; its case is judged again, alone"
        elif loss.task is not None:
            goes_on = self._schedule.lost(loss.task, loss.answered, blamed=loss.began or not self._gpus.usable)
        self._tell(
            WorkerLost(
                loss.worker,
                reason + ("" if goes_on else "; the rest of its batch is given up"),
                note.case if note else "",
                loss.printed,
            )
        )
        if not loss.began and (note is None or loss.failure):
            self._strike(loss.gpu, loss.failure or loss.verdict.message)
        self._count(f"no worker survives: {loss.failure or loss.verdict.message}\n{loss.printed}".strip())

    def _count(self, words: str) -> None:
        """Gives up after too many losses."""
        if (
            self._fruitless > self._config.workers + 3
            or self._ledger.restarts - self._again > 10 + self._ledger.tally.drawn // 4
        ):
            self._give_up("workers", words)

    def _out(self, loss: Loss, outage: Outage) -> None:
        """A worker is gone because its place is: what it had goes on with another one."""
        self._hand_back(loss)
        if outage in self._outages:
            return
        self._outages.add(outage)
        self._ledger.restarts += 1
        self._fruitless += 1
        self._tell(
            WorkerLost(loss.worker, f"{outage.place} lost all of its workers: {outage.reason}; what they had goes on")
        )
        self._strike(outage.place, outage.reason, final=outage.final)
        self._count(f"no worker survives: {outage.place}: {outage.reason}")

    def _hand_back(self, loss: Loss) -> None:
        """What a worker had goes to another one, with the case that it was at."""
        self._freed(loss.worker, blamed=False)
        if (suspect := self._suspects.taken(loss.worker)) is not None:
            self._suspects.again(suspect)
        elif loss.task is not None:
            self._schedule.lost(loss.task, loss.answered, blamed=False)

    def _convict(self, suspect: Suspect, loss: Loss) -> bool:
        """A case killed a second worker; whether the rest of its task goes on."""
        self._again += 1
        evidence = self._ledger.tally.evidence.get(
            suspect.case.name, environment.evidence(self._config.device, self._config.numerics)
        )
        result = loss.result(suspect.case, evidence)
        if isinstance(suspect.task, Batch | Chunk):
            result = self._schedule.answered(suspect.task, result)
        self._keep(result, suspect.case.subject)
        return suspect.task is None or not suspect.counts or self._schedule.lost(suspect.task, suspect.answered + 1)

    def _strike(self, gpu: str, why: str, *, final: bool = False) -> None:
        """A worker ended for no reason that lies in its case: its GPU may be set aside, and what its other workers had goes on elsewhere."""
        if not self._gpus.strike(gpu, why, final=final):
            return
        self._tell(GpuSetAside(gpu, self._gpus.aside[gpu]))
        for loss in self._pool.set_aside(gpu):
            self._hand_back(loss)
        if self._gpus.none_left:
            reasons = "; ".join(f"{gpu_words(name)}: {reason}" for name, reason in self._gpus.aside.items())
            if self._config.host is None:
                self._give_up("gpus", f"no GPU is left: {reasons}")
            else:
                self._give_up("places", f"no place of the cluster is left: {reasons}")

    def _give_up(self, reason: str, words: str) -> None:
        if not self._ledger.tally.drawn:
            raise NoVerdictError(words)
        self.ended = self.ended or reason

    def end(self, reason: str) -> None:
        """The campaign is over: where it met its budget, a case that was not judged again could not be judged."""
        for suspect in self._suspects.end():
            if reason != "budget" or not isinstance(suspect.task, Batch | Chunk):
                continue
            message = f"a worker was lost ({suspect.reason}), and the time was over before its case was judged again"
            verdict = Verdict(check="harness", status=Status.ERROR, error="exception", message=message)
            result = CaseResult(suspect.case.case, suspect.case.name, self._config.device, (verdict,))
            self._keep(self._schedule.answered(suspect.task, result), suspect.case.subject)
