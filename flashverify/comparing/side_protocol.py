"""What is asked of the process of a side and what it answers: a line of JSON each way, followed by arrays."""

from __future__ import annotations

import msgspec

from flashverify.bench.records import Workload
from flashverify.comparing.functions import Code

__all__ = [
    "Accepted",
    "Arrays",
    "Cases",
    "Failed",
    "Functions",
    "ListCases",
    "ListFunctions",
    "ListShapes",
    "Measure",
    "Open",
    "Opened",
    "OutputArrays",
    "Prepare",
    "Reply",
    "Request",
    "Shapes",
    "Time",
    "Took",
    "WhichAccepted",
    "decode_reply",
    "decode_request",
]


class Open(msgspec.Struct, frozen=True, tag=True):
    """The first request.

    Attributes:
        spec: of the subject.
        device: `cpu` or `cuda`.
        numerics: of interpreted kernels.
        toolkit: `module:name` of what loads subjects and lists cases.
        folder: whose modules are the subject's own; empty is the folder of its file.
    """

    spec: str
    device: str
    numerics: str
    toolkit: str
    folder: str = ""


class ListCases(msgspec.Struct, frozen=True, tag=True):
    """The fixed matrix, the packaged corpus, and drawn cases, those that the subject accepts."""

    fixed: bool
    drawn: int
    seed: int


class WhichAccepted(msgspec.Struct, frozen=True, tag=True):
    """Which of the cases the subject accepts."""

    cases: tuple[str, ...]


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Run the subject on a case and hand its outputs over."""

    case: str


class ListFunctions(msgspec.Struct, frozen=True, tag=True):
    """The functions of the subject's own modules that are imported by now: a subject may import its kernel as late as in its first call."""


class ListShapes(msgspec.Struct, frozen=True, tag=True):
    """The shapes that the subject is timed at; of `among`, where it is given, those that it takes."""

    among: tuple[Workload, ...] | None = None


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Make the tensors of a shape, compile and warm up."""

    shape: Workload


class Time(msgspec.Struct, frozen=True, tag=True):
    """Time so many calls of the shape that was prepared."""

    calls: int


Request = Open | ListCases | WhichAccepted | Measure | ListFunctions | ListShapes | Prepare | Time


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The subject is loaded: its name, and the versions of the packages that it runs in."""

    name: str
    versions: dict[str, str]


class Functions(msgspec.Struct, frozen=True, tag=True):
    """Functions by file and qualified name."""

    functions: dict[str, Code]


class Cases(msgspec.Struct, frozen=True, tag=True):
    """Texts of cases."""

    cases: tuple[str, ...]


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """For each case whether the subject accepts it."""

    accepted: tuple[bool, ...]


class OutputArrays(msgspec.Struct, frozen=True):
    """One output of a case, as bytes that follow the line in this order: bits, ratios, signs.

    Attributes:
        name: of the output.
        dtype: `fp16`, `bf16` or `fp32`.
        shape: of it.
        bits: bytes of its elements, little-endian.
        ratios: bytes of (got - exact) / bound, float32; NaN where nothing is asked, infinite where a value is not finite.
        signs: bytes of the sign of the exact value, int8.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bits: int
    ratios: int
    signs: int


class Arrays(msgspec.Struct, frozen=True, tag=True):
    """The outputs of a case, and the mean of log2 of their bounds by output, by which forms differ."""

    outputs: tuple[OutputArrays, ...]
    bounds: dict[str, float]


class Shapes(msgspec.Struct, frozen=True, tag=True):
    """Shapes, and what they are timed on: `cpu`, or a GPU."""

    shapes: tuple[Workload, ...]
    evidence: str


class Took(msgspec.Struct, frozen=True, tag=True):
    """The median time of calls in ms, and after `Prepare` on a GPU the largest memory of one in bytes."""

    milliseconds: float
    memory: int | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """What the request asks for cannot be had.

    Attributes:
        kind: name of the class of an error of flashverify, empty of another one.
    """

    kind: str
    message: str


Reply = Opened | Functions | Cases | Accepted | Arrays | Shapes | Took | Failed

_REQUEST = msgspec.json.Decoder(Request)
_REPLY = msgspec.json.Decoder(Reply)


def decode_request(line: bytes) -> Request:
    """A request; raises msgspec.MsgspecError on damaged data."""
    found: Request = _REQUEST.decode(line)
    return found


def decode_reply(line: bytes) -> Reply:
    """A reply; raises msgspec.MsgspecError on damaged data."""
    found: Reply = _REPLY.decode(line)
    return found
