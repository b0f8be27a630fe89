"""What the minimal case of a finding says of its cause: what that needs, and whether it only lacks precision."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from flashverify.campaign.causes.symptoms import FAR
from flashverify.case.case import Storage
from flashverify.case.modifiers.logits import modifiers_of
from flashverify.case.text import parse_case
from flashverify.diagnosis.looks import looks
from flashverify.judge.verdict import from_hex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key, Verdict

__all__ = ["NOT_YET", "needs", "rounds", "small", "small_errors"]

NOT_YET = "it was not minimised yet"
"""`FindingRecord.not_minimal` of a finding that waits."""


def needs(minimal: Case) -> frozenset[str]:
    """Parts of the mask, modifiers, several sequences, groups of heads, launch parameters and properties of the storage, by name.

    Sizes, values, dtypes and a backward are no part of it: nearly every defect needs some.
    """
    return frozenset(_needs(minimal))


def small_errors(key: Key, lead: FindingRecord) -> bool:
    """Whether a statistic of errors is about an output that a finding makes wrong by little, in 16 bits and everywhere.

    A statistic is taken of outputs within their bounds alone, so that nothing ever shows both. A finding with a name is no loss of
    precision, nor is one whose minimal case needs a part, unless its errors look like a known step that rounds.
    """
    if key.check != "statistics" or lead.key.check != "accuracy" or key.output != lead.key.output:
        return False
    minimal = parse_case(lead.case)
    # The number of steps in which something is summed up decides how large an error is.
    somewhere = not lead.not_minimal and needs(minimal) - {name for name, _ in minimal.launch}
    said = lead.diagnosis
    step = said is not None and bool(said.evidence and looks(said.sentence))
    named = said is not None and said.name
    return lead.key.dtype != "fp32" and (step or not somewhere) and not named and small(lead.verdict)


def small(verdict: Verdict) -> bool:
    """Whether a failure is a value outside its bound by little."""
    return bool(verdict.ratio) and from_hex(verdict.ratio) < FAR


def rounds(finding: FindingRecord) -> bool:
    """Whether the errors of a finding look like a step that rounds."""
    said = finding.diagnosis
    return said is not None and not said.name and bool(said.evidence and looks(said.sentence))


def _needs(case: Case) -> Iterator[str]:
    yield from (part.name for part, _ in case.mask.given())
    yield from (modifier.name for modifier in modifiers_of(case))
    yield from (name for name, _ in case.launch)
    plain = Storage()
    yield from (f.name for f in fields(plain) if getattr(case.storage, f.name) != getattr(plain, f.name))
    if case.batch > 1:
        yield "several sequences"
    if case.heads_q > case.heads_kv:
        yield "groups of heads"
