"""Whether two findings that nobody could explain by one cause have causes of their own: each was seen where the other one cannot be."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice, product
from typing import TYPE_CHECKING

from flashverify.campaign.causes.accesses import one_place
from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.diagnoses import OF_VALUES, UNWRITTEN, one_form, one_name
from flashverify.campaign.causes.needs import NOT_YET, small
from flashverify.campaign.causes.symptoms import OF_ROWS, SHAPE, TOLD_BY_VALUES, VALUES, symptom
from flashverify.campaign.plan_name import PROCESS_CHECKS
from flashverify.case.text import parse_case
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.case.case import Case
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["LOW", "has", "holds", "independent", "is_silent", "lacks_parts", "naming", "needed"]

_SHAPES = frozenset({"groups of heads", "several sequences", "no rows", "no keys"})
"""Shapes of a case without which a failure may be gone."""
_SIZES = ("seq_q", "seq_k", "dim_qk", "dim_v")
_LOOKED_AT = 200
"""Cases of a failure that are looked at."""
LOW = "16 bits"
_CAUSAL = "has causal"
EMPTY_ROW = "empty-row"
"""The error of values in a row that sees no key."""
_EMPTY, _ROWS = "empty rows", "a row"


def naming(finding: FindingRecord) -> str:
    """The name of its diagnosis; empty without one, or where that says only that something is never written."""
    name = finding.diagnosis.name if finding.diagnosis is not None else ""
    return "" if name == UNWRITTEN else name


def independent(
    found: FindingRecord,
    lead: FindingRecord,
    company: Company,
    *,
    denied: bool,
    told: bool = False,
    crossed: Callable[[], bool],
    without: tuple[bool, bool] = (False, False),
    kept: Collection[Key] = (),
) -> bool:
    """Whether anything shows that two findings of one subject have causes of their own.

    Two different names do, and a name that does not account for the values of another output. So do needs: each was seen on a case
    without something that the case of the other one has, or with half a size of its minimal case. Of two wrong outputs each may have
    been right where the other one was wrong.

    Args:
        found: a finding.
        lead: another one.
        company: what was seen of both.
        denied: whether the diagnosis of the one that has a name does not account for the other one.
        told: whether the diagnosis of the one says that the other one is no work of its cause.
        crossed: asks whether each was seen on a case that could have shown the other one and did not.
        without: whether an experiment showed the first one without something that the case of the second one has, and the reverse.
        kept: buckets that were folded for company alone.
    """
    checks = {found.key.check, lead.key.check}
    if checks & {*PROCESS_CHECKS, "exception"}:
        return True
    names = {naming(found), naming(lead)}
    if "" not in names and (len(names) == 2 or checks <= {*TOLD_BY_VALUES, *OF_VALUES}):
        return not one_name(found, lead)
    if one_form(found, lead):
        return False
    if told:
        return True
    of_values, alike = checks <= set(VALUES), _same_output(found, lead)
    if not alike and (found.key.error == SHAPE) != (lead.key.error == SHAPE):
        return True
    unnamed = _unnamed(found, lead).key
    if len(names) == 2 and denied and not alike and unnamed.check in VALUES and unnamed.error != EMPTY_ROW:
        return True  # rows that see no key are no part of what a name says
    if one_place(found, lead, kept):
        return False
    apart = without[0] or _outside(found, lead, company), without[1] or _outside(lead, found, company)
    if all(apart) or (found.key.cause and apart[0]) or (lead.key.cause and apart[1]):
        return True
    empty = any(map(_of_empty_rows, (found, lead)))  # the sizes of a case decide whether it has such a row
    sizes = not empty and _with_less(found, lead, company) and _with_less(lead, found, company)
    second = found.key.cause or lead.key.cause  # the other cases of its bucket show the first cause
    return sizes or (of_values and not alike and not second and crossed())


def is_silent(cause: FindingRecord, sighting: Sighting) -> bool:
    """Whether wrong values of a case can hardly be the work of a cause with a name.

    The case lacks something that the minimal case of the cause has, or O and the LSE are right there, though the cause makes them wrong.
    """
    if not naming(cause) or sighting.key.check not in VALUES:
        return False
    right = not any(verdict.check in VALUES and verdict.output in FORWARD for verdict in sighting.failures)
    needs = needed(cause)
    without = (_EMPTY in needs and sighting.key.error != EMPTY_ROW) or not _holds(sighting.case, needs)
    lacks = not cause.not_minimal and without
    return lacks or (right and cause.key.check in VALUES and cause.key.output in FORWARD)


def lacks_parts(found: FindingRecord, lead: FindingRecord) -> bool:
    """Whether a failure shows on a smaller case than it was seen on, and that lacks a part that the minimal case of a finding has."""
    if found.case == found.first or lead.not_minimal:
        return False
    return any(part.startswith("has ") for part in needed(lead) - _has(found.case))


def _of_empty_rows(finding: FindingRecord) -> bool:
    """Whether a finding is about rows that see no key, or that the subject takes for such: their LSE is -inf."""
    key = finding.key
    lost = (key.check, key.error, key.output) == ("nonfinite", "inf", "lse") and " is -inf " in finding.verdict.message
    return lost or key.error == EMPTY_ROW


def _unnamed(found: FindingRecord, lead: FindingRecord) -> FindingRecord:
    return lead if naming(found) else found


def _same_output(found: FindingRecord, lead: FindingRecord) -> bool:
    """Whether both are about one output; of values that are not finite O and the LSE are one, since both come of the same row."""
    outputs = {found.key.output, lead.key.output}
    return len(outputs) == 1 or ("nonfinite" in (found.key.check, lead.key.check) and outputs <= set(FORWARD))


def _outside(found: FindingRecord, lead: FindingRecord, company: Company) -> bool:
    """Whether a finding was seen on a case that lacks something that the case of the other one has.

    A case that could not be made minimal has more than its failure needs, so that more tells the two apart. One that nobody made
    smaller says nothing of what its failure needs.
    """
    if lead.not_minimal == NOT_YET:
        return False
    needs = needed(lead)
    if _EMPTY in needs and found.key.error != EMPTY_ROW:
        return True
    return any(not _holds(text, needs) for text in _cases(found, company))


def _with_less(found: FindingRecord, lead: FindingRecord, company: Company) -> bool:
    """Whether a finding was seen on a case with at most half of a size that the minimal case of the other one has."""
    if lead.not_minimal:
        return False
    minimal = parse_case(lead.case)
    pairs = product(map(parse_case, _cases(found, company)), _SIZES)
    return any(0 < 2 * getattr(case, size) <= getattr(minimal, size) for case, size in pairs)


def _cases(finding: FindingRecord, company: Company) -> Iterator[str]:
    texts = () if finding.key.cause else islice(company.cases(finding.key), _LOOKED_AT)
    return iter((finding.case, *texts))


def needed(finding: FindingRecord) -> frozenset[str]:
    """What the case of a finding has, beside sizes, a backward and values.

    A row is needed only where its output has elements for each row, 16 bits only where the error is small and fp32 does not show it.
    """
    needs = _has(finding.case) - {"has backward"}
    if parse_case(finding.case).mask.causal is None:
        needs -= {_CAUSAL}  # the edge of its window is what it needs
    same = (each.key for each in finding.folded if symptom(each.key) == symptom(finding.key))
    if not (finding.key.check == "accuracy" and small(finding.verdict)) or any(key.dtype == "fp32" for key in same):
        needs -= {LOW}
    if finding.key.check not in VALUES or finding.key.output not in OF_ROWS:
        needs -= {_ROWS}
    return needs | ({_EMPTY} if finding.key.error == EMPTY_ROW else set())


def holds(case: Case, needs: frozenset[str]) -> bool:
    """Whether a case has what is needed; of rows that see no key, which an error tells and no case, nothing is asked."""
    return needs - {_EMPTY} <= has(case)


def _holds(text: str, needs: frozenset[str]) -> bool:
    return needs - {_EMPTY} <= _has(text)


@lru_cache(4096)
def _has(text: str) -> frozenset[str]:
    return has(parse_case(text))


def has(case: Case) -> frozenset[str]:
    """What a case has that a failure may need. The right edge of a window is what kernels make a causal mask of."""
    parts = {part for part in Company.parts(case) if part.startswith("has ") or part in _SHAPES}
    rows = {_ROWS} if any(case.rows_inside or (case.seq_q,)) else set()
    if case.mask.window is not None and case.mask.window[1] is not None:
        parts.add(_CAUSAL)
    return frozenset(parts | rows | ({LOW} if case.dtype != "fp32" else set()))
