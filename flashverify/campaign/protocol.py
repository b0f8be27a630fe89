"""What crosses a process border: tasks go down to a worker, events come up; both are one JSON object a line."""

from __future__ import annotations

import msgspec

from flashverify.campaign.causes.sighting import Sighting
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord
from flashverify.judge.verdict import CaseResult, Key, Verdict

__all__ = [
    "Attribute",
    "Attributed",
    "Batch",
    "CaseJudged",
    "CaseList",
    "CasesListed",
    "Chunk",
    "Event",
    "Improved",
    "Judge",
    "Judged",
    "Minimal",
    "Minimise",
    "Profile",
    "Ready",
    "Reply",
    "Shown",
    "Started",
    "Task",
    "TaskDone",
    "WorkerConfig",
    "WorkerFailed",
    "decode_event",
    "decode_task",
    "encode",
]


class WorkerConfig(msgspec.Struct, frozen=True):
    """The first line that a worker reads.

    Attributes:
        toolkit: `module:name` of the `Toolkit` that loads subjects, draws cases and judges them.
        device: `cpu` or `cuda`.
        inflight: file that names the case being run.
        events_fd: inherited descriptor for the events.
        case_limit: seconds that one case may take.
        plain: whether interpreted programs run one after the other instead of in lockstep.
        numerics: of interpreted kernels.
    """

    toolkit: str
    device: str
    inflight: str
    events_fd: int
    case_limit: float
    plain: bool = False
    numerics: str = "ieee"


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Draw `examples` cases for `subject` from `seed` and judge them."""

    subject: str
    number: int
    seed: int
    examples: int
    quarantine: tuple[str, ...] = ()


class Chunk(msgspec.Struct, frozen=True, tag=True):
    """Judge these cases by `plan`, the text of a `PlanName`."""

    subject: str
    cases: tuple[str, ...]
    plan: str = "run"


class CaseList(msgspec.Struct, frozen=True, tag=True):
    """Name the cases of the fixed matrix of `subject`, or `examples` drawn ones, that each of `also` accepts too.

    Attributes:
        corpus: the cases of the packaged corpus that it accepts, in place of the matrix.
    """

    subject: str
    also: tuple[str, ...] = ()
    examples: int = 0
    seed: int = 0
    corpus: bool = False


class Minimise(msgspec.Struct, frozen=True, tag=True):
    """Shrink a failing case for at most `seconds`, then verify it in fresh processes, `repeats` times, and diagnose it.

    Attributes:
        limit: seconds that all of it may take; what is not done by then is left out. None is no limit.
        first: the case that showed the failure first, tried again where the minimal one does not reproduce.
        known: other causes, which are not to account for this one.
        apart: failures of causes without a name, which smaller cases are not to show.
        undiagnosed: no diagnosis is made.
    """

    subject: str
    key: Key
    case: str
    first: str
    verdict: Verdict
    seconds: float
    repeats: int
    quarantine: tuple[str, ...] = ()
    limit: float | None = None
    known: tuple[Diagnosis, ...] = ()
    apart: tuple[Key, ...] = ()
    undiagnosed: bool = False


class Attribute(msgspec.Struct, frozen=True, tag=True):
    """Ask of each failure whether `cause`, a finding, accounts for it, for `limit` seconds; None is no limit.

    Attributes:
        trials: whether cases are run again in other ways; otherwise only what takes one run at most is asked, and no answer is one too.
    """

    cause: FindingRecord
    asked: tuple[Sighting, ...]
    limit: float | None = None
    trials: bool = True


class Profile(msgspec.Struct, frozen=True, tag=True):
    """Judge the minimal case of `cause`, a finding, in every dtype, with a backward and with more rows and keys, for `limit` seconds."""

    cause: FindingRecord
    limit: float | None = None


class Judge(msgspec.Struct, frozen=True, tag=True):
    """Judge one case by `plan`, the text of a `PlanName`.

    Attributes:
        confirm: ask mpmath about the failure of that key.
        diagnose: name what explains the failure of that key.
        first: text of another case that fails likewise, which the diagnosis may look at; empty for none.
    """

    subject: str
    case: str
    plan: str
    confirm: Key | None = None
    diagnose: Key | None = None
    first: str = ""


Task = Batch | Chunk | CaseList | Minimise | Attribute | Profile | Judge


class Reply(msgspec.Struct, frozen=True):
    """The supervisor's answer to `CaseJudged`: the result is stored; go on or stop."""

    stop: bool


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker runs; what it knows of its machine."""

    environment: dict[str, str]


class Started(msgspec.Struct, frozen=True, tag=True):
    """A case was announced on disk and begins; also a sign of life during long work."""


class CaseJudged(msgspec.Struct, frozen=True, tag=True):
    """A case of the campaign was judged; the worker waits for a `Reply`.

    Attributes:
        form: numerical form of the subject, in words, with its first result only.
    """

    subject: str
    result: CaseResult
    form: str = ""


class CasesListed(msgspec.Struct, frozen=True, tag=True):
    """Answer to `CaseList`."""

    cases: tuple[str, ...]


class Judged(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Judge`."""

    result: CaseResult
    confirmation: Confirmation = Confirmation()
    diagnosis: Diagnosis | None = None


class Improved(msgspec.Struct, frozen=True, tag=True):
    """A smaller case fails with the same key."""

    key: Key
    case: str
    verdict: Verdict


class Minimal(msgspec.Struct, frozen=True, tag=True):
    """The smallest case found, verified; `complete` where nothing was left to simplify."""

    key: Key
    case: str
    verdict: Verdict
    confirmation: Confirmation
    diagnosis: Diagnosis | None = None
    complete: bool = True


class Attributed(msgspec.Struct, frozen=True, tag=True):
    """Why the cause of the finding `cause` accounts for a failure, in words; empty where it does not.

    Attributes:
        told: whether the question was answered; where not, `why` is empty too.
    """

    cause: Key
    asked: Sighting
    why: str
    told: bool = True


class Shown(msgspec.Struct, frozen=True, tag=True):
    """Cases that have nothing beyond the minimal case of the finding `cause` show these buckets too; `why` says which cases, in words."""

    cause: Key
    buckets: tuple[Key, ...]
    why: str


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
    | Judged
    | Improved
    | Minimal
    | Attributed
    | Shown
    | TaskDone
    | WorkerFailed
)

_EVENT = msgspec.json.Decoder(Event)
_TASK = msgspec.json.Decoder(Task)


def encode(message: msgspec.Struct) -> bytes:
    """One line."""
    return msgspec.json.encode(message) + b"\n"


def decode_event(line: bytes) -> Event:
    """An event of a worker; raises msgspec.MsgspecError on damaged data."""
    event: Event = _EVENT.decode(line)
    return event


def decode_task(line: bytes) -> Task:
    """A task; raises msgspec.MsgspecError on damaged data."""
    task: Task = _TASK.decode(line)
    return task
