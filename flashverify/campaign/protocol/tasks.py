"""What goes down to a worker, one JSON object a line."""

from __future__ import annotations

import msgspec

from flashverify.campaign.causes.sighting import Sighting
from flashverify.judge.record import Diagnosis, FindingRecord
from flashverify.judge.verdict import Key, Verdict

__all__ = [
    "Answered",
    "Attribute",
    "Batch",
    "CaseList",
    "Chunk",
    "Compare",
    "Judge",
    "Mend",
    "Minimise",
    "Prepare",
    "Profile",
    "Reconsider",
    "Reply",
    "Retry",
    "Separate",
    "Task",
    "WorkerConfig",
    "decode_task",
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
        ahead: compute capability, such as `9.0`, for which the worker compiles and judges nothing; empty is a worker that judges.
        memory: bytes that the processes may use which the worker starts; None is no limit.
        sharers: workers on its GPU.
    """

    toolkit: str
    device: str
    inflight: str
    events_fd: int
    case_limit: float
    plain: bool = False
    numerics: str = "ieee"
    ahead: str = ""
    memory: int | None = None
    sharers: int = 1


class Answered(msgspec.Struct, frozen=True):
    """A case of a batch that was judged before.

    Attributes:
        case: its text.
        ratios: worst error / bound by output and mode, where they exceed those of the cases before it.
    """

    case: str
    ratios: dict[str, float] = {}


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Draw `examples` cases for `subject` from `seed` and judge them.

    Attributes:
        most: cases after which the batch is left, those of `answered` included; None is all.
        answered: its first cases, which were judged before and are not judged again.
        simplest: whether the first draw, the simplest case of all, is judged; it is in the first batch of a subject.
        profile: how large drawn cases are, one of `PROFILES`; empty is that of the device.
        kinds: those whose kernels are compiled, of which alone is drawn; a case that needs another kernel is put off. None is every kind.
        fixed: whether `answered` are its first cases in their order. Otherwise what it draws depends on what is compiled, and they are left out.
        traced: whether the worker draws from kinds that it has compiled itself, because torch traces the subject.
    """

    subject: str
    number: int
    seed: int
    examples: int
    quarantine: tuple[str, ...] = ()
    most: int | None = None
    answered: tuple[Answered, ...] = ()
    simplest: bool = True
    profile: str = ""
    kinds: tuple[int, ...] | None = None
    fixed: bool = True
    traced: bool = False

    @property
    def origin(self) -> str:
        """What its results are marked with."""
        return f"batch {self.number}"


class Chunk(msgspec.Struct, frozen=True, tag=True):
    """Judge these cases by `plan`, the text of a `PlanName`; their results are marked with `origin`, the list that they are of.

    Attributes:
        sparing: whether checks that torch would compile more for are left out where the worker has compiled enough.
    """

    subject: str
    cases: tuple[str, ...]
    plan: str = "run"
    origin: str = ""
    sparing: bool = False


class CaseList(msgspec.Struct, frozen=True, tag=True):
    """Name the cases of the fixed matrix of `subject`, or `examples` drawn ones, that each of `also` accepts too.

    Attributes:
        corpus: the cases of the packaged corpus that it accepts, in place of the matrix.
        profile: how large drawn cases are, one of `PROFILES`; empty is that of the device.
    """

    subject: str
    also: tuple[str, ...] = ()
    examples: int = 0
    seed: int = 0
    corpus: bool = False
    profile: str = ""


class Minimise(msgspec.Struct, frozen=True, tag=True):
    """Shrink a failing case for at most `seconds`, then verify it in fresh processes, `repeats` times, and diagnose it.

    Attributes:
        limit: seconds that all of it may take; what is not done by then is left out. None is no limit.
        first: the case that showed the failure first, tried again where the minimal one does not reproduce.
        known: diagnoses of other causes. They are not to account for a second cause of its bucket; where one accounts for the minimal case
            of a first one, no other diagnosis is made.
        apart: failures of causes without a name, which smaller cases are not to show.
        beside: failures of another cause; where the minimal case shows one of them, it is neither diagnosed nor verified.
        undiagnosed: no diagnosis is made.
        own: a gradient is wrong in its own right; smaller cases on which it may only follow from O or the LSE are not taken.
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
    beside: tuple[Key, ...] = ()
    undiagnosed: bool = False
    own: bool = False


class Attribute(msgspec.Struct, frozen=True, tag=True):
    """Ask of each failure whether `cause`, a finding, accounts for it, for `limit` seconds; None is no limit.

    Attributes:
        trials: whether cases are run again in other ways; otherwise only what takes one run at most is asked, and no answer is one too.
    """

    cause: FindingRecord
    asked: tuple[Sighting, ...]
    limit: float | None = None
    trials: bool = True


class Compare(msgspec.Struct, frozen=True, tag=True):
    """Ask whether an explained finding comes and goes with `cause`, another one, for `limit` seconds; None is no limit.

    Attributes:
        asked: the case by which the finding was known before it was minimised, with its minimal case and then those on which it was seen
            without the cause as `alone`; one sighting.
    """

    cause: FindingRecord
    asked: tuple[Sighting, ...]
    limit: float | None = None


class Separate(msgspec.Struct, frozen=True, tag=True):
    """Look for what tells the finding `found` apart from `cause`, another one, for `limit` seconds; None is no limit.

    Attributes:
        only_name: the diagnosis of the one is asked about the other one, and no more.
    """

    cause: FindingRecord
    found: FindingRecord
    limit: float | None = None
    only_name: bool = False


class Profile(msgspec.Struct, frozen=True, tag=True):
    """Judge the minimal case of `cause`, a finding, in every dtype, with a backward and with more rows and keys, for `limit` seconds."""

    cause: FindingRecord
    limit: float | None = None


class Reconsider(msgspec.Struct, frozen=True, tag=True):
    """Diagnose `cause`, a verified finding of which little was said, once more, for `limit` seconds."""

    cause: FindingRecord
    limit: float


class Mend(msgspec.Struct, frozen=True, tag=True):
    """Look for changes of the source with which the subject of `cause`, a verified finding, is right, for `limit` seconds."""

    cause: FindingRecord
    limit: float


class Retry(msgspec.Struct, frozen=True, tag=True):
    """Judge the cases of `found`, other findings, with the first repair of `cause` in place, for `limit` seconds."""

    cause: FindingRecord
    found: tuple[FindingRecord, ...]
    limit: float


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


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Compile what judging `cases` launches, or, without any, what `examples` cases of a kind launch, which are drawn from `seed`."""

    subject: str
    cases: tuple[str, ...] = ()
    kind: int = -1
    seed: int = 0
    examples: int = 0


Task = (
    Batch
    | Chunk
    | CaseList
    | Minimise
    | Attribute
    | Compare
    | Separate
    | Profile
    | Reconsider
    | Mend
    | Retry
    | Judge
    | Prepare
)


class Reply(msgspec.Struct, frozen=True):
    """The supervisor's answer to `CaseJudged`: the result is stored; go on or stop."""

    stop: bool


_TASK = msgspec.json.Decoder(Task)


def decode_task(line: bytes) -> Task:
    """A task; raises msgspec.MsgspecError on damaged data."""
    task: Task = _TASK.decode(line)
    return task
