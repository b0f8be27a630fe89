"""What the command and its process say to each other."""

from __future__ import annotations

import msgspec

from flashverify.judge.record import Repair

__all__ = ["Answer", "Failed", "Request"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Which failure is to be repaired.

    Attributes:
        toolkit: `module:name` of the `Toolkit` that loads the subject and judges the case.
        subject: registered name or `module:name`.
        case: text of the failing case.
        first: text of another case that fails likewise; empty for none.
        stored_first: it stands in a stored finding, and is left out where the subject does not accept it any more.
        check: that failed; empty for all of them.
        numerics: of interpreted kernels.
        seconds: for which edits are tried.
    """

    toolkit: str
    subject: str
    case: str
    first: str = ""
    stored_first: bool = False
    check: str = ""
    numerics: str = "ieee"
    seconds: float = 60.0


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """What was found.

    Attributes:
        subject: its name.
        evidence: what the verdict on the case rests on.
        repairs: that were found.
        why: there is none, in words; empty where there is one.
        able: whether the subject can run.
        seconds: that trying took.
    """

    subject: str
    evidence: str
    repairs: tuple[Repair, ...] = ()
    why: str = ""
    able: bool = True
    seconds: float = 0.0


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Why there is no answer: the kind of our own error, or empty where the subject or the harness raised."""

    kind: str
    message: str
