"""What comes up from a worker, one JSON object a line."""

from __future__ import annotations

import msgspec

from flashverify.campaign.causes.sighting import Sighting
from flashverify.judge.record import Confirmation, Diagnosis, Repair
from flashverify.judge.verdict import CaseResult, Key, Verdict

__all__ = [
    "Attributed",
    "CaseJudged",
    "CasesListed",
    "Compared",
    "Event",
    "Improved",
    "Judged",
    "Mended",
    "Minimal",
    "OfFinding",
    "Prepared",
    "PutOff",
    "Ready",
    "Reconsidered",
    "Retried",
    "Separated",
    "Shown",
    "Spent",
    "Started",
    "TaskDone",
    "WorkerFailed",
    "decode_event",
]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker runs; what it knows of its machine."""

    environment: dict[str, str]


class Started(msgspec.Struct, frozen=True, tag=True):
    """A case was announced on disk and begins; also a sign of life during long work."""


class Spent(msgspec.Struct, frozen=True):
    """What a case took of a GPU's worker beside its own work.

    Attributes:
        compiled: kernels that were compiled, and functions that torch compiled.
        compiling: seconds of the compilers.
        oracle: seconds of the oracle.
        traced: the functions among what was compiled.
        opened: kinds of cases that are drawn from since then, of a subject that torch traces.
    """

    compiled: int = 0
    compiling: float = 0.0
    oracle: float = 0.0
    traced: int = 0
    opened: int = 0


class CaseJudged(msgspec.Struct, frozen=True, tag=True):
    """A case of the campaign was judged; the worker waits for a `Reply`.

    Attributes:
        form: numerical form of the subject, in words, with its first result only.
        spent: on a GPU, what the case took.
    """

    subject: str
    result: CaseResult
    form: str = ""
    spent: Spent = Spent()


class PutOff(msgspec.Struct, frozen=True, tag=True):
    """A drawn case was not judged, because one of its kernels is not compiled.

    Attributes:
        left: whether nobody shall judge it later: torch traces the subject, and every worker compiles for itself.
    """

    subject: str
    case: str
    left: bool = False


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Prepare`: the cases, whose kernels are compiled now.

    Attributes:
        kind: as in the task.
        launches: of Triton kernels that the cases made.
        compiled: kernels that were not in the cache.
        usual: kinds that a search should have before others; 0 where no kind was asked for.
        total: kinds that there are.
        traced: whether torch traces the subject, so that nothing is compiled ahead of the workers.
    """

    subject: str
    cases: tuple[str, ...]
    kind: int = -1
    launches: int = 0
    compiled: int = 0
    usual: int = 0
    total: int = 0
    traced: bool = False


class CasesListed(msgspec.Struct, frozen=True, tag=True):
    """Answer to `CaseList`."""

    cases: tuple[str, ...]


class Judged(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Judge`."""

    result: CaseResult
    confirmation: Confirmation = Confirmation()
    diagnosis: Diagnosis | None = None


class Improved(msgspec.Struct, frozen=True, tag=True):
    """A smaller case fails with the same key.

    Attributes:
        diagnosis: of the smallest case, before it is verified; None as long as there is none.
    """

    key: Key
    case: str
    verdict: Verdict
    diagnosis: Diagnosis | None = None


class Minimal(msgspec.Struct, frozen=True, tag=True):
    """The smallest case found, verified.

    Attributes:
        complete: nothing was left to simplify.
        shows: every bucket that the case fell into when the check of the finding was asked; None where that is not known.
    """

    key: Key
    case: str
    verdict: Verdict
    confirmation: Confirmation
    diagnosis: Diagnosis | None = None
    complete: bool = True
    shows: tuple[Key, ...] | None = None


class Attributed(msgspec.Struct, frozen=True, tag=True):
    """Why the cause of the finding `cause` accounts for a failure, in words; empty where it does not.

    Attributes:
        told: whether the question was answered; where not, `why` is empty too.
        at_work: whether the cause shows with other values on every case on which the bucket was seen alone; None where that was not asked.
    """

    cause: Key
    asked: Sighting
    why: str
    told: bool = True
    at_work: bool | None = None


class Compared(msgspec.Struct, frozen=True, tag=True):
    """Why the explained findings `cause` and `found` are one, in words; empty where nothing says so.

    Attributes:
        at_work: whether the cause shows with other values on every case on which the other finding was seen alone.
    """

    cause: Key
    found: Key
    why: str
    at_work: bool = False


class Separated(msgspec.Struct, frozen=True, tag=True):
    """What tells two findings apart.

    Attributes:
        accounts: whether the diagnosis of the one that has a name accounts for the minimal case of the other; None where it has no say.
        found_alone: text of a case that shows `found` and lacks something that the case of `cause` has; empty where none was seen.
        cause_alone: the same the other way round.
        only_name: no more than that diagnosis was asked.
        wider: whether it accounts for it on a case on which its conditions do not hold.
    """

    cause: Key
    found: Key
    accounts: bool | None = None
    found_alone: str = ""
    cause_alone: str = ""
    only_name: bool = False
    wider: bool = False


class Shown(msgspec.Struct, frozen=True, tag=True):
    """Cases that have nothing beyond the minimal case of the finding `cause` show these buckets too; `why` says which cases, in words.

    Attributes:
        sure: whether nothing but the cause can be at work there; a case that is not minimal may show another cause as well, and so may
            the other problem of a check.
        follows: whether they are gradients that may be wrong there only because O or the LSE is.
    """

    cause: Key
    buckets: tuple[Key, ...]
    why: str
    sure: bool = True
    follows: bool = False


class Reconsidered(msgspec.Struct, frozen=True, tag=True):
    """A further diagnosis of a finding says more than the first one."""

    key: Key
    diagnosis: Diagnosis


class Mended(msgspec.Struct, frozen=True, tag=True):
    """Changes of the source with which the subject of a finding is right, or why the search for them ended early; neither where it found none."""

    key: Key
    repairs: tuple[Repair, ...]
    unmended: str = ""


class Retried(msgspec.Struct, frozen=True, tag=True):
    """Findings whose cases are right with the repair of another one, `cause`, and those that it leaves wrong."""

    cause: Key
    right: tuple[Key, ...]
    wrong: tuple[Key, ...] = ()


class TaskDone(msgspec.Struct, frozen=True, tag=True):
    """The task ended."""


class WorkerFailed(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot go on, for a reason that it can name; `error` is the class of the exception."""

    error: str
    message: str


Event = (
    Ready
    | Started
    | CaseJudged
    | CasesListed
    | PutOff
    | Prepared
    | Judged
    | Improved
    | Minimal
    | Attributed
    | Compared
    | Separated
    | Shown
    | Reconsidered
    | Mended
    | Retried
    | TaskDone
    | WorkerFailed
)

OfFinding = Improved | Minimal | Attributed | Compared | Separated | Shown | Reconsidered | Mended | Retried
"""What is said of a finding."""

_EVENT = msgspec.json.Decoder(Event)


def decode_event(line: bytes) -> Event:
    """An event of a worker; raises msgspec.MsgspecError on damaged data."""
    event: Event = _EVENT.decode(line)
    return event
