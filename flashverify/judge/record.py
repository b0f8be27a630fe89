"""What a run leaves on disk besides its case results: its header, its findings, its summary.

<run>/run.json                  RunRecord, written first
<run>/lists.json                the lists of cases that are judged before any is drawn
<run>/progress.json             the batches of draws that were handed out
<run>/live.json                 how it stands, for `flashverify status`; carries no verdict
<run>/results.jsonl             one CaseResult a line
<run>/index/                    of a large run, what was read of them (`flashverify.campaign.store.segments`); may be removed
<run>/findings/<slug>/          case.json (text form of the minimal case), finding.json (FindingRecord), repro.py
<run>/summary.json              Summary, written last
<run>/losses.json               the workers that were lost and the GPUs set aside, with why (`flashverify.campaign.store.losses`)
<run>/stats.json                of a campaign on a GPU, what was compiled and where the time went (`flashverify.campaign.store.stats`)
<run>/report.{html,md,json}     the report

Each of these records, and each line of results, ends with a member `crc32`, the checksum of everything before it.
"""

from __future__ import annotations

import msgspec

from flashverify.judge.verdict import Key, Verdict
from flashverify.judge.wrong_map import WrongMap

__all__ = ["FORMAT", "THIN", "Confirmation", "Diagnosis", "FindingRecord", "Folded", "Repair", "RunRecord", "Summary"]

FORMAT = 1
THIN = 100
"""Covering cases below which a pass is called thin."""


class Confirmation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What re-verification in a fresh process and the mpmath oracle said of a minimal case.

    Attributes:
        repeats: fresh runs made; `failed` of them failed with the same key.
        oracle: `mpmath` where the multi-precision oracle recomputed the failing element, otherwise empty.
        expected: the exact value; `got` the subject's; `bound` the accepted error; hex floats.
        agrees: whether the exact value confirms the failure; None where accuracy was not the question.
    """

    repeats: int = 0
    failed: int = 0
    oracle: str = ""
    expected: str = ""
    got: str = ""
    bound: str = ""
    agrees: bool | None = None


class Repair(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of one place of the subject's source that makes it right.

    Attributes:
        file: its path, from the working directory on where it lies in it.
        line: the first one that is changed.
        function: in which it stands.
        before: the lines as they are, at the left margin; `after` as they would be, empty where they are left out.
        cases: further ones on which the subject is right with it; `failing` of them fail without it.
    """

    file: str
    line: int
    function: str
    before: str
    after: str
    cases: int
    failing: int


class Diagnosis(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong, in words.

    Attributes:
        name: of the wrong semantics of `flashverify.diagnosis` that explains every output; empty where none does.
        sentence: what the kernel does, for a reader; where no semantics fits, that.
        also: names of others that explain the outputs of every case tried as well.
        place: where it shows: outputs, rows, keys, tiles, heads, and of an interpreted kernel the first non-finite line.
        conditions: under which the semantics is wrong, as `flashverify.diagnosis` parses them; all hold; empty where it always is.
        evidence: what the name rests on, in words: how many further cases were explained, and how many of them clearly.
        form: the numerical form under which the outputs would be within bounds, as Python text; empty where none was found.
        reading: the sentence with which `sentence` begins if that was read off the kernel and held on fresh cases; empty where a
            semantics has a name for it, or nothing was read.
        repairs: changes of the subject's source with which it is right, each by itself; none where none was found or looked for.
        unmended: why the search for repairs ended early, in words; empty where it did not.
        beside: of O and the LSE, and of dK and dV, the one that what is named leaves as it is: where it is wrong, that has another cause.
    """

    name: str = ""
    sentence: str = ""
    also: tuple[str, ...] = ()
    place: str = ""
    conditions: tuple[str, ...] = ()
    evidence: str = ""
    form: str = ""
    reading: str = ""
    repairs: tuple[Repair, ...] = ()
    unmended: str = ""
    beside: tuple[str, ...] = ()


class Folded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure that has the cause of another finding.

    Attributes:
        key: its bucket.
        case: text form of its minimal case if that failed again in fresh processes, otherwise of the case that showed it first.
        message: of its verdict.
        why: it is the same cause, in words.
        count: cases of the run that fell into the bucket.
    """

    key: Key
    case: str
    message: str
    why: str
    count: int = 1


class FindingRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure made minimal.

    Attributes:
        key: its bucket.
        case: text form of the minimal case.
        first: text form of the case that showed it first.
        verdict: the failing verdict on the minimal case.
        confirmation: re-verification.
        count: cases of the run that fell into the bucket.
        seconds: from the start of the run to the first sight.
        evidence: interpreter, cpu, or the GPU and its architecture.
        subject_spec: what to pass to `--subject` to reproduce it.
        diagnosis: of the minimal case; None where none was made.
        not_minimal: why the case is not minimal, in words; empty where it is.
        folded: the failures of the same cause, over outputs, dtypes and checks.
        first_map: where the failing elements lie in the case that showed it first; None where that verdict did not say.
    """

    key: Key
    case: str
    first: str
    verdict: Verdict
    evidence: str
    subject_spec: str
    confirmation: Confirmation = Confirmation()
    count: int = 1
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None
    not_minimal: str = ""
    folded: tuple[Folded, ...] = ()
    first_map: WrongMap | None = None


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Header of a run.

    Attributes:
        kind: `run` or `fuzz`.
        subjects: specs, as given.
        seed: of the campaign.
        environment: versions, machine, commit.
        command: the command line.
        started: seconds since the epoch.
        form: per subject, the numerical form that its bounds assume, in words.
        numerics: of interpreted kernels.
        profile: how large drawn cases are; empty is that of the device.
        sealed: whether every record of the folder ends with its checksum.
        shard: `I/N` where the run is one of N shards, otherwise empty.
        max_cases: budget in cases, that of all shards together; None where there is none.
    """

    kind: str
    subjects: tuple[str, ...]
    seed: int
    environment: dict[str, str]
    command: str = ""
    started: float = 0.0
    form: dict[str, str] = {}
    format: int = FORMAT
    numerics: str = "ieee"
    profile: str = ""
    sealed: bool = False
    shard: str = ""
    max_cases: int | None = None


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """End of a run.

    Attributes:
        cases: judged; `unsupported` were refused by the subject, `covering` count as coverage.
        findings: causes, and buckets whose cause was not asked for in time.
        restarts: workers that died or hung and were replaced.
        seconds: wall clock.
        stopped: why it ended: `budget`, `findings` (as many as asked for), `interrupted`, `workers` (they kept dying), `gpus`
            or `places` (all were set aside), `disk`, `shards` (merged of shards that are not all there and over).
        exit_code: of the command.
        part: what was judged of the cases that were to be judged, in words, where that is not all.
    """

    cases: int
    unsupported: int
    covering: int
    findings: int
    restarts: int
    seconds: float
    stopped: str
    exit_code: int
    part: str = ""
