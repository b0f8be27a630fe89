"""Which of several diagnoses name one defect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES
from flashverify.diagnosis.families import canonical
from flashverify.diagnosis.implication import implied
from flashverify.diagnosis.looks import looks
from flashverify.outputs import BACKWARD, FORWARD, KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.judge.record import Diagnosis, FindingRecord, Repair
    from flashverify.judge.verdict import Key

__all__ = [
    "KEPT",
    "MADE_RIGHT",
    "OF_VALUES",
    "UNWRITTEN",
    "about_values",
    "agreed",
    "alike",
    "heard",
    "is_mended",
    "named",
    "names",
    "one_form",
    "one_name",
    "same_defect",
    "says_apart",
    "says_little",
    "says_more",
    "told_apart",
    "wider",
]

OF_VALUES = ("counting", "relations", "config")
"""Checks that ask about values too, by way of other problems."""

KEPT = "stale-"
"""What the names of things begin with that are kept between calls."""

UNWRITTEN = "not-written"
"""A name that says what was seen, not why."""
MADE_RIGHT = "its repair makes this right too"
"""Why a failure has the cause of a finding."""
_BRANCHES = ("if ", "elif ", "while ")
"""What the line of a branch begins with."""
_DESCRIBED, _SEEN, _WRONG = 1, 2, 3
"""How much a diagnosis says: what the failure looks like, what was seen, and what is wrong."""


def about_values(key: Key) -> bool:
    """Whether a failure is one of wrong values, or of a question about values by way of another problem."""
    return key.check in (*TOLD_BY_VALUES, *OF_VALUES)


def named(finding: FindingRecord) -> bool:
    """Whether the diagnosis of a finding has a name."""
    return finding.diagnosis is not None and bool(finding.diagnosis.name)


def alike(key: Key, found: Diagnosis | None, known: Iterable[FindingRecord]) -> FindingRecord | None:
    """The first of the `known` findings whose diagnosis names the same defect as `found`, the diagnosis of the finding `key`.

    Where no semantics has a name for it, one reading of the kernel is one defect; and so is one repair, whatever the names. Both findings have to be about values: what else fails on a case with wrong values gets their name as well.
    """
    if found is None or not (found.name or found.reading or found.repairs) or not about_values(key):
        return None
    others = (r for r in known if r.key != key and about_values(r.key) and r.diagnosis is not None)
    alike = (
        r
        for r in others
        if r.diagnosis is not None and (same_defect(r.diagnosis, found) or _one_repair(r.diagnosis, found))
    )
    return next(alike, None)


def changes_values(repair: Repair) -> bool:
    """Whether a repair does more than to switch a branch, which makes every mistake right that lies in it."""
    return not repair.before.startswith(_BRANCHES)


def is_mended(finding: FindingRecord) -> bool:
    """Whether a finding about values has a repair that tells something of other failures."""
    found = finding.diagnosis
    return found is not None and about_values(finding.key) and any(map(changes_values, found.repairs[:1]))


def _one_repair(a: Diagnosis, b: Diagnosis) -> bool:
    """Whether the change of the source that was found first for either is one and the same."""
    first = [each.repairs[0] for each in (a, b) if each.repairs]
    if len(first) < 2 or not changes_values(first[0]):
        return False
    return msgspec.structs.replace(first[0], cases=0, failing=0) == msgspec.structs.replace(
        first[1], cases=0, failing=0
    )


def agreed(first: Diagnosis, second: Diagnosis) -> Diagnosis:
    """Of two diagnoses of one defect the one whose name stands for both, or with which fewer semantics are consistent, at the place of the first."""
    if first.name != second.name and (name := canonical(first.name, second.name)):
        clearer, other = (first, second) if name == first.name else (second, first)
        clearer = msgspec.structs.replace(
            clearer, sentence=f"{clearer.sentence} Other cases show it so: {other.sentence}"
        )
    else:
        clearer = second if len(second.also) < len(first.also) else first
    return msgspec.structs.replace(clearer, place=first.place)


def heard(lead: FindingRecord, member: FindingRecord) -> Diagnosis | None:
    """What the lead of two findings with one cause says from now on: what was found out of the member, where that says more.

    A name, a reading and a model of rounding say what is wrong; that something is never written is what was seen, and a description is less.
    What gradients look like says nothing of a wrong O or LSE.
    """
    own, other = lead.diagnosis, member.diagnosis
    if lead.key.output in FORWARD and member.key.output in BACKWARD:
        return own
    if other is None or _says(own) >= min(_says(other), _WRONG):
        return own
    key = member.key
    whose = f"So it is of {key.output} of {key.dtype} ({key.check}), which has the same cause."
    place, repairs = (other.place, other.repairs) if own is None else (own.place, own.repairs or other.repairs)
    return msgspec.structs.replace(other, sentence=f"{other.sentence} {whose}", place=place, repairs=repairs, beside=())


def _says(found: Diagnosis | None) -> int:
    """How much is said: nothing, what a failure looks like, what was seen, what is wrong."""
    if found is None:
        return 0
    if found.name == UNWRITTEN:
        return _SEEN
    return _WRONG if found.name or found.evidence else _DESCRIBED


def says_little(found: Diagnosis | None) -> bool:
    """Whether a diagnosis names nothing and read nothing, or left several names, or there is none."""
    return _says(found) <= _DESCRIBED or (found is not None and bool(found.also))


def says_more(found: Diagnosis, than: Diagnosis | None) -> bool:
    """Whether a diagnosis says what is wrong, and another one of the same failure does not, or with more names."""
    if than is None:
        return True
    if not says_little(than) or _says(found) < _WRONG:
        return False
    return not than.name or (bool(found.name) and len(found.also) < len(than.also))


def says_apart(found: FindingRecord, key: Key) -> bool:
    """Whether what the diagnosis of a finding names leaves another output as it is, whose values are wrong."""
    beside = () if found.diagnosis is None else found.diagnosis.beside
    return key.check == "accuracy" and key.output in beside and key.output != found.key.output


def names(found: Iterable[FindingRecord]) -> dict[Key, Diagnosis]:
    """The diagnoses that have a name, by finding."""
    return {r.key: r.diagnosis for r in found if r.diagnosis is not None and r.diagnosis.name}


def same_defect(a: Diagnosis, b: Diagnosis) -> bool:
    """Whether one mistake has both names, or some semantics is consistent with the cases of both, under the same conditions; without names whether one thing was read."""
    if not (a.name or b.name):
        return bool(a.reading) and a.reading == b.reading
    shared = {a.name, *a.also} & {b.name, *b.also} - {""}
    return a.conditions == b.conditions and bool(shared or canonical(a.name, b.name))


def one_name(a: FindingRecord, b: FindingRecord) -> bool:
    """Whether two findings have one name, and the conditions of the one follow from those of the other."""
    if a.diagnosis is None or b.diagnosis is None or a.diagnosis.name != b.diagnosis.name:
        return False
    mine, other = a.diagnosis.conditions, b.diagnosis.conditions
    return implied(mine, other) or implied(other, mine)


def one_form(a: FindingRecord, b: FindingRecord) -> bool:
    """Whether two findings without names lack the same precision: one form would allow both, or outputs of one kernel look like one step."""
    if a.diagnosis is None or b.diagnosis is None or named(a) or named(b):
        return False
    form, other = a.diagnosis.form, b.diagnosis.form
    together = any({a.key.output, b.key.output} <= set(kernel) for kernel in KERNELS)
    step = together and bool(looks(a.diagnosis.sentence) & looks(b.diagnosis.sentence))
    return step or bool(form and form == other)


def wider(diagnosis: Diagnosis, found: FindingRecord) -> Diagnosis:
    """A diagnosis that accounts for a finding on whose minimal case its conditions do not hold."""
    key = found.key
    said = f"{diagnosis.sentence} Not there alone: {key.output} of {key.dtype} is wrong in this way on another case too, {found.case}."
    return msgspec.structs.replace(diagnosis, conditions=(), sentence=said)


def told_apart(found: FindingRecord, lead: FindingRecord) -> bool:
    """Whether a name tells explained findings apart. That something is never written is what was seen, not why."""
    mine, other = (record.diagnosis.name if record.diagnosis is not None else "" for record in (found, lead))
    unwritten = mine == UNWRITTEN and other in ("", UNWRITTEN)
    return not unwritten and (bool(mine) or (bool(other) and found.key.check in TOLD_BY_VALUES))
