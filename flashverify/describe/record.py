"""The description of a subject as data."""

from __future__ import annotations

import msgspec

__all__ = ["Answer", "Description", "Failed", "Request", "Untested"]


class Request(msgspec.Struct, frozen=True, kw_only=True, tag="request"):
    """What is asked of the process that loads the subject.

    Args:
        subject: as `--subject` takes it.
        device: `cpu` or `cuda`.
        seed: of the drawn cases.
    """

    subject: str
    device: str
    seed: int = 0


class Untested(msgspec.Struct, frozen=True):
    """One thing that no case of the subject has.

    Args:
        topic: what it is about, such as `masks` or `gradients`.
        what: in words.
    """

    topic: str
    what: str


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A subject as it declares itself.

    Args:
        spec: as it was named.
        name: in reports.
        device: where its cases run.
        supports: fields of `Supports` that differ from their defaults, by name, as Python text.
        contract: fields of `Contract`, likewise.
        form: fields of `Form` of a drawn case, likewise.
        defaults: the other fields of these, by `supports`, `contract` and `form`, as Python text.
        untested: what no case has.
        fixed: cases that `flashverify run` judges.
        corpus: cases of the packaged corpus that it accepts.
        drawn: texts of three drawn cases.
        refused: share of the draws that `also` throws away.
        reasons: its conditions with their shares, those first that refuse most.
    """

    spec: str
    name: str
    device: str
    supports: dict[str, str]
    contract: dict[str, str]
    form: dict[str, str]
    defaults: dict[str, dict[str, str]]
    untested: tuple[Untested, ...]
    fixed: int
    corpus: int
    drawn: tuple[str, ...]
    refused: float
    reasons: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """The description."""

    description: Description


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """What stood in its way.

    Args:
        kind: the name of an error of flashverify; empty where the subject's module raised.
        message: its text.
    """

    kind: str
    message: str
