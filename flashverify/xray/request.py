"""What the command and its process say to each other."""

from __future__ import annotations

import msgspec

from flashverify.xray.record import Record

__all__ = ["Answer", "Failed", "Request"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to look at.

    Attributes:
        subject: registered name or `module:name`.
        case: its text; empty for a default of this `length` and `mask`.
        length: rows and keys.
        mask: see `default_case`.
        out: the folder to write to.
        device: `cpu` or `cuda`.
    """

    subject: str
    case: str
    length: int
    mask: str
    out: str
    device: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """What was found, and the files that tell it."""

    record: Record
    picture: str
    data: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Why there is no answer: the kind of our own error, or empty where the subject raised."""

    kind: str
    message: str
