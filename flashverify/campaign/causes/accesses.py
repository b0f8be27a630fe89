"""What a sanitizer says of accesses: which are the same, and which stores overwrite what is not theirs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flashverify.campaign.causes.symptoms import symptom

if TYPE_CHECKING:
    from flashverify.campaign.causes.symptoms import Symptom
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["access", "accesses", "kernel", "overwritten", "stores"]

_ACCESS = re.compile(r"^(.*: \w+: (\w+) of [^\[]+)\[")
"""Source lines, kernel, kind and tensor in the message of a sanitizer."""
_KERNEL = re.compile(r": (\w+): \w+ of [^\[]+\[")
_OVERWRITTEN = ("guard", "touched", "input")
"""Errors of the check `memory` that stores make which lie outside their own elements."""


def access(message: str) -> str:
    """Which line of which kernel loads or stores which tensor, where a message says that; empty where not."""
    found = _ACCESS.match(message)
    return found[1] if found else ""


def kernel(message: str) -> str:
    """Which kernel loads or stores, where a message says that; empty where not."""
    found = _KERNEL.search(message)
    return found[1] if found else ""


def accesses(finding: FindingRecord) -> frozenset[str]:
    """The accesses that a finding and the failures that it holds complain about."""
    messages = (finding.verdict.message, *(folded.message for folded in finding.folded))
    return frozenset(map(access, messages)) - {""}


def stores(finding: FindingRecord) -> frozenset[Symptom]:
    """The failures of a finding in which a sanitizer complains about a store."""
    found = ((finding.key, finding.verdict.message), *((folded.key, folded.message) for folded in finding.folded))
    return frozenset(symptom(key) for key, message in found if key.check == "sanitizer" and _kind(message) == "store")


def overwritten(key: Key) -> bool:
    """Whether memory was found to hold what a wrong store left there."""
    return key.check == "memory" and key.error in _OVERWRITTEN


def _kind(message: str) -> str:
    found = _ACCESS.match(message)
    return found[2] if found else ""
