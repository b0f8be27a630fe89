"""An aggregate as bytes, for the index of a run, and back: every number as it was."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from flashverify.errors import StoreError
from flashverify.judge.verdict import Key, Sampled, Status, Verdict
from flashverify.report.aggregate import Aggregate, Bucket, Totals
from flashverify.report.bias import Bias
from flashverify.report.group import Group, GroupKey, Peak
from flashverify.report.tested import AxesSeen

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["pack_aggregate", "unpack_aggregate"]

_Pair = tuple[str, str]


class _Group(msgspec.Struct, frozen=True, array_like=True):
    key: tuple[str, str, str, str]
    cases: int
    elements: int
    exempt: int
    uninformative: int
    dull: int
    bias: tuple[int, float, float]
    worst: tuple[float, str, tuple[int, ...]] | None
    ratios: bytes
    lengths: dict[int, float]
    regimes: dict[str, float]
    masks: dict[str, float]
    cells: tuple[tuple[int, int, float], ...]


class _Subject(msgspec.Struct, frozen=True, array_like=True):
    name: str
    outcomes: dict[Status, int]
    covering: int
    seconds: float
    evidence: dict[str, int]
    checks: tuple[tuple[str, Status, int], ...]
    tested: tuple[int, int, int]
    counts: tuple[tuple[_Pair, int], ...]
    pairs: tuple[tuple[_Pair, int], ...]


class _Aggregate(msgspec.Struct, frozen=True, array_like=True):
    groups: tuple[_Group, ...]
    subjects: tuple[_Subject, ...]
    failures: tuple[tuple[Key, int, str, Verdict, str], ...]
    unsupported: dict[str, int]
    errors: dict[str, int]
    warnings: dict[str, int]
    sampled: Sampled | None


def pack_aggregate(aggregate: Aggregate) -> bytes:
    """The bytes of an aggregate."""
    found = _Aggregate(
        groups=tuple(_packed_group(key, group) for key, group in aggregate.groups.items()),
        subjects=tuple(_packed_subject(name, totals) for name, totals in aggregate.subjects.items()),
        failures=tuple(
            (key, each.count, each.case, each.verdict, each.evidence) for key, each in aggregate.failures.items()
        ),
        unsupported=dict(aggregate.unsupported),
        errors=dict(aggregate.errors),
        warnings=dict(aggregate.warnings),
        sampled=aggregate.sampled,
    )
    return msgspec.msgpack.encode(found)


def unpack_aggregate(data: bytes) -> Aggregate:
    """Inverse of `pack_aggregate`.

    Raises:
        StoreError: these are other bytes.
    """
    try:
        found = msgspec.msgpack.decode(data, type=_Aggregate)
        return Aggregate(
            groups={GroupKey(*each.key): _group(each) for each in found.groups},
            subjects={each.name: _totals(each) for each in found.subjects},
            failures={key: Bucket(count, case, verdict, on) for key, count, case, verdict, on in found.failures},
            unsupported=Counter(found.unsupported),
            errors=Counter(found.errors),
            warnings=Counter(found.warnings),
            sampled=found.sampled,
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreError(f"an aggregate of results cannot be read: {error}") from error


def _packed_group(key: GroupKey, group: Group) -> _Group:
    worst, bias = group.worst, group.bias
    return _Group(
        (key.subject, key.dtype, key.output, key.mode),
        group.cases,
        group.elements,
        group.exempt,
        group.uninformative,
        group.dull,
        (bias.count, bias.total, bias.squares),
        None if worst is None else (worst.ratio, worst.case, worst.index),
        group.ratios.tobytes(),
        group.lengths,
        group.regimes,
        group.masks,
        tuple((bucket, place, ratio) for (bucket, place), ratio in group.cells.items()),
    )


def _group(stored: _Group) -> Group:
    ratios = array("d")
    ratios.frombytes(stored.ratios)
    return Group(
        cases=stored.cases,
        elements=stored.elements,
        exempt=stored.exempt,
        uninformative=stored.uninformative,
        dull=stored.dull,
        bias=Bias(*stored.bias),
        worst=None if stored.worst is None else Peak(*stored.worst),
        ratios=ratios,
        lengths=stored.lengths,
        regimes=stored.regimes,
        masks=stored.masks,
        cells={(bucket, place): ratio for bucket, place, ratio in stored.cells},
    )


def _packed_subject(name: str, totals: Totals) -> _Subject:
    tested = totals.tested
    return _Subject(
        name,
        dict(totals.outcomes),
        totals.covering,
        totals.seconds,
        dict(totals.evidence),
        tuple((check, status, count) for (check, status), count in totals.checks.items()),
        (tested.cases, tested.rows, tested.keys),
        tuple(tested.counts.items()),
        tuple(tested.pairs.items()),
    )


def _totals(stored: _Subject) -> Totals:
    cases, rows, keys = stored.tested
    return Totals(
        outcomes=Counter(stored.outcomes),
        covering=stored.covering,
        seconds=stored.seconds,
        evidence=Counter(stored.evidence),
        checks=Counter({(check, status): count for check, status, count in stored.checks}),
        tested=AxesSeen(cases, _counter(stored.counts), _counter(stored.pairs), rows, keys),
    )


def _counter(pairs: Iterable[tuple[_Pair, int]]) -> Counter[_Pair]:
    return Counter(dict(pairs))
