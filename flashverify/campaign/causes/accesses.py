"""What a sanitizer says of accesses: which are the same, and which stores overwrite what is not theirs."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from flashverify.campaign.causes.symptoms import symptom

if TYPE_CHECKING:
    from collections.abc import Collection

    from flashverify.campaign.causes.symptoms import Symptom
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["access", "accesses", "one_place", "overwritten", "stores"]

_ACCESS = re.compile(r"^(.*: \w+: (\w+) of [^\[]+)\[")
"""Source lines, kernel, kind and tensor in the message of a sanitizer."""
_LINES = r"(\S+:\d+(?: from \S+:\d+)*): (\w+): "
"""Source lines, the innermost one first, and the kernel."""
_PLACE = re.compile(rf"^{_LINES}\w+ of ([^\[]+)\[")
"""These and the tensor in the message of a sanitizer."""
_BEGIN = re.compile(rf"; non-finite values begin with: loaded at {_LINES}load\(\)")
"""These of the load of the first number that is not finite."""
_OVERWRITTEN = ("guard", "touched", "input")
"""Errors of the check `memory` that stores make which lie outside their own elements."""


def access(message: str) -> str:
    """Which line of which kernel loads or stores which tensor, where a message says that; empty where not."""
    found = _ACCESS.match(message)
    return found[1] if found else ""


def accesses(finding: FindingRecord) -> frozenset[str]:
    """The accesses that a finding and the failures that it holds complain about."""
    messages = (finding.verdict.message, *(folded.message for folded in finding.folded))
    return frozenset(map(access, messages)) - {""}


def one_place(found: FindingRecord, lead: FindingRecord, kept: Collection[Key] = ()) -> bool:
    """Whether two findings complain about accesses of memory at one place, of which one finding is no more than that.

    Two that are both no more than that are at one place in one kernel. Otherwise what the other one holds has to be of the same
    innermost line of that kernel, or of several tensors there: a program that is where it should not be loads and stores many.
    A value that is not finite is of the place where the first such number was loaded.

    Args:
        found: a finding.
        lead: another one.
        kept: buckets that were folded into them for company alone, which do not count.
    """
    led = [record for record in (found, lead) if record.key.check == "sanitizer"]
    if not led:
        return False
    one, other = _places(found, kept), _places(lead, kept)
    kernels = {place.kernel for place in one} & {place.kernel for place in other}
    if len(led) == 2 and kernels:
        return True
    held = other if led[0] is found else one
    several = any(len({place.tensor for place in held if place.kernel == kernel} - {""}) > 1 for kernel in kernels)
    return several or any(a.same(b) for a, b in product(one, other))


def stores(finding: FindingRecord) -> frozenset[Symptom]:
    """The failures of a finding in which a sanitizer complains about a store."""
    found = ((finding.key, finding.verdict.message), *((folded.key, folded.message) for folded in finding.folded))
    return frozenset(symptom(key) for key, message in found if key.check == "sanitizer" and _kind(message) == "store")


def overwritten(key: Key) -> bool:
    """Whether memory was found to hold what a wrong store left there."""
    return key.check == "memory" and key.error in _OVERWRITTEN


class _Place(NamedTuple):
    """Where memory is accessed; the tensor is empty where a message names only the load of a number that is not finite."""

    lines: str
    kernel: str
    tensor: str

    def same(self, other: _Place) -> bool:
        """Whether two are of one kernel and innermost line, and where a load is named by its number alone of all lines."""
        mine, theirs = self.lines, other.lines
        if self.tensor and other.tensor:
            mine, theirs = mine.split(" from ")[0], theirs.split(" from ")[0]
        return (mine, self.kernel) == (theirs, other.kernel)


def _places(finding: FindingRecord, kept: Collection[Key]) -> set[_Place]:
    """Where a sanitizer complains about accesses, and where the first numbers that are not finite are loaded."""
    held = [folded for folded in finding.folded if folded.key not in kept]
    said = ((finding.key, finding.verdict.message), *((folded.key, folded.message) for folded in held))
    accessed = (_PLACE.match(message) for key, message in said if key.check == "sanitizer")
    begun = (_BEGIN.search(message) for key, message in said if key.check == "nonfinite")
    found = {_Place(each[1], each[2], each[3]) for each in accessed if each}
    return found | {_Place(each[1], each[2], "") for each in begun if each}


def _kind(message: str) -> str:
    found = _ACCESS.match(message)
    return found[2] if found else ""
