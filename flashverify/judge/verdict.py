"""The records of judging: what a check said, with numbers. They are data: stored as JSON, rendered by the reports."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import msgspec

from flashverify.judge.key import Key
from flashverify.judge.quantisation import QuantisationError
from flashverify.judge.wrong_map import WrongMap

__all__ = [
    "CaseResult",
    "Key",
    "OtherProblem",
    "OutputStats",
    "QuantisationError",
    "Sampled",
    "Status",
    "Verdict",
    "from_hex",
    "to_hex",
]


class Status(StrEnum):
    """The answer of a check."""

    PASS = "pass"
    FAIL = "fail"
    EXEMPT = "exempt"
    UNSUPPORTED = "unsupported"
    ERROR = "error"


def to_hex(value: float) -> str:
    """A float as text that JSON keeps exactly, NaN and infinities included."""
    return value.hex() if math.isfinite(value) else str(value)


def from_hex(text: str) -> float:
    """Inverse of `to_hex`."""
    return float.fromhex(text)


class OtherProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What fails on the problem that a check compared a case with, and not on the case itself.

    Attributes:
        case: the parts and sizes of that problem as text; its tensors are the check's own, not those that the text draws.
        failures: check, error and output of each.
    """

    case: str
    failures: tuple[tuple[str, str, str], ...]


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of one check.

    Attributes:
        check: name of the check.
        status: its answer.
        output: `o`, `lse`, `delta`, `dq`, `dk`, `dv`, an input's name, of the sanitizer the kernel's argument, of an exception its
            type; empty where it concerns none.
        error: class of the failure, one of those that the check declares (docs/checks.md); empty on a pass.
        mode: `end-to-end`, `conditional`, `strict` or `saturated`, where there are several.
        ratio: error / bound at the worst element, hex; empty where there is none.
        index: the worst element, logical indices.
        message: one sentence with numbers.
        traceback: of an exception, capped; text of the subject, to be shown as data.
        case: text of the case that it is about, where that is another one than was judged: a problem that a check made is wrong by itself.
        map: where the failing elements lie; None where the check does not say.
        other: what fails on the other problem of a check that compares two; None where nothing does, or where the check does not say.
    """

    check: str
    status: Status
    output: str = ""
    error: str = ""
    mode: str = ""
    ratio: str = ""
    index: tuple[int, ...] = ()
    message: str = ""
    traceback: str = ""
    case: str = ""
    map: WrongMap | None = None
    other: OtherProblem | None = None

    def key(self, subject: str, dtype: str) -> Key:
        """The identity under which this failure is bucketed."""
        return Key(subject, self.check, self.error, self.output, dtype)


class OutputStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """How close one output of one case came to its bound; ratios are hex floats over the judged elements.

    Attributes:
        output: its name.
        mode: `end-to-end`, `conditional`, `strict` or `saturated`.
        elements: judged, exempt and uninformative ones together.
        exempt: elements whose bound is infinite by the overflow rules or by taint.
        uninformative: elements whose bound exceeds the trivial range.
        worst: largest ratio.
        median: of the ratios.
        p99: their 99th percentile.
        index: where the largest ratio is, logical indices.
        signed: mean of (got - exact) / bound, each clamped to [-1, 1]; empty where there is none.
        telling: elements whose exact value lies outside the bound around 0: a subject that returns zeros fails there; -1 is unknown.
    """

    output: str
    mode: str
    elements: int
    exempt: int = 0
    uninformative: int = 0
    worst: str = "0x0.0p+0"
    median: str = "0x0.0p+0"
    p99: str = "0x0.0p+0"
    index: tuple[int, ...] = ()
    signed: str = ""
    telling: int = -1


class Sampled(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the oracle judged of cases that are too large for all of them.

    Attributes:
        cases: their number.
        rows: judged in O, LSE, delta and dQ; `of_rows` there are.
        keys: judged in dK and dV; `of_keys` there are.
        left_out: outputs of which the oracle judged nothing.
    """

    rows: int
    of_rows: int
    keys: int
    of_keys: int
    left_out: tuple[str, ...] = ()
    cases: int = 1

    def plus(self, other: Sampled | None) -> Sampled:
        """Both together."""
        if other is None:
            return self
        return Sampled(
            rows=self.rows + other.rows,
            of_rows=self.of_rows + other.of_rows,
            keys=self.keys + other.keys,
            of_keys=self.of_keys + other.of_keys,
            left_out=tuple(sorted({*self.left_out, *other.left_out})),
            cases=self.cases + other.cases,
        )

    def __str__(self) -> str:
        of = "" if self.cases == 1 else f"of {self.cases:,} large cases "
        said = (
            f"{of}the oracle judged {self.rows:,} of {self.of_rows:,} rows and {self.keys:,} of {self.of_keys:,} keys"
        )
        left = f"nothing of {', '.join(self.left_out)}" if self.left_out else ""
        in_one = left if self.cases == 1 else f"{left} in some"
        return f"{said}, and {in_one}" if left else said


class CaseResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that was said about one case.

    Attributes:
        case: its text.
        subject: its name.
        evidence: what the verdicts rest on: `interpreter`, `cpu`, or the GPU's name and architecture.
        verdicts: in the order of the checks.
        stats: of every comparison with the oracle.
        seconds: that it took.
        warnings: remarks that are no failures.
        sampled: which part the oracle judged; None is all of it.
        quantisation: of a quantised case that was judged in full, what quantisation itself costs; beside the verdicts, no part of them.
        origin: the list or the batch of a campaign that it belongs to, as `batch 12`; empty where there is none.
        unasked: checks that were left out, because a launch of theirs asked for a kernel that was not compiled ahead.
    """

    case: str
    subject: str
    evidence: str
    verdicts: tuple[Verdict, ...]
    stats: tuple[OutputStats, ...] = ()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    sampled: Sampled | None = None
    origin: str = ""
    quantisation: tuple[QuantisationError, ...] = ()
    unasked: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """The failing verdicts, in the order of the checks."""
        return tuple(v for v in self.verdicts if v.status is Status.FAIL)

    def case_of(self, verdict: Verdict) -> str:
        """Text of the case that one of the verdicts is about."""
        return verdict.case or self.case

    @property
    def unsupported(self) -> str | None:
        """The reason, where the subject does not accept the case."""
        return next((v.message for v in self.verdicts if v.status is Status.UNSUPPORTED), None)

    @property
    def coverage(self) -> bool:
        """Whether the case counts as coverage: judged, at most 1 % of its elements exempt or uninformative, and zeros would not pass."""
        elements, void, telling = 0, 0, False
        for stats in self.stats:
            elements += stats.elements
            void += stats.exempt + stats.uninformative
            telling = telling or stats.telling != 0
        return telling and elements > 0 and void <= 0.01 * elements and self.unsupported is None

    def to_json(self) -> bytes:
        """One line of JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> CaseResult:
        """Inverse of `to_json`; raises msgspec.DecodeError or ValidationError on damaged data."""
        return msgspec.json.decode(data, type=cls)


def to_builtins(record: msgspec.Struct) -> dict[str, Any]:
    """A record as plain dicts and lists."""
    return dict(msgspec.to_builtins(record))
