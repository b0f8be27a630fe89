"""What else the minimal case of a finding shows: in other dtypes, with a backward, with more rows and keys."""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.campaign.causes.diagnoses import named
from flashverify.campaign.causes.sighting import may_follow, sightings_of
from flashverify.campaign.causes.symptoms import VALUES, consequences, symptom
from flashverify.campaign.protocol import Shown, Started
from flashverify.case.case import DTYPES, Case, Grad, Values
from flashverify.case.changes import change
from flashverify.case.text import format_case, parse_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.campaign.protocol import Profile
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Logits
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["profile"]

_QUICK, _FULL = "fuzz", "run"
"""What a drawn case is asked, and every check."""
_SEVERAL = 128
"""Rows and keys of which kernels make more than one tile."""


def profile(session: Session, task: Profile) -> None:
    """Emit `Shown` for each case that shows the finding, until the limit: every dtype is asked quickly first, then by every check."""
    end = math.inf if task.limit is None else time.monotonic() + task.limit
    spec, finding = task.cause.subject_spec, task.cause
    subject, minimal = session.subject(spec), parse_case(finding.case)
    known, followed = {finding.key}, {finding.key}
    for plan in (_QUICK, _FULL):
        for case, words in _variants(minimal, named(finding)):
            if time.monotonic() > end:
                return
            if session.toolkit.refusal(subject, case) is not None:
                continue
            result = session.judge(spec, case, plan)
            if symptom(finding.key) not in map(symptom, result.failures):
                continue
            found: defaultdict[tuple[str, bool, bool], list[Key]] = defaultdict(list)
            for key, sighting in sightings_of(result).items():
                may = may_follow(sighting)
                said = known | followed if may else known
                if key not in said and not _by_size(key, case, task, minimal) and _accounts(session, task, sighting):
                    (followed if may else known).add(key)
                    follows = consequences(sighting.failures, sighting.given).get(key.output, "")
                    why = follows or f"its minimal case{words} shows it too"
                    found[why, _sure(key, finding, bool(follows)), may].append(key)
            for (why, sure, may), buckets in found.items():
                session.emit(Shown(finding.key, tuple(buckets), why, sure, may))


def _variants(minimal: Case, told: bool) -> Iterator[tuple[Case, str]]:
    """Cases without any part that `minimal` does not have, each with words for what was changed.

    A diagnosis can tell whose work the gradient of a part is; then there are cases with such a part too.
    """
    own = minimal.dtype
    backward = minimal.grad if minimal.grad.backward else Grad(dlse=True)
    plain = Values(seed=minimal.values.seed)
    sizes = {"seq_q": max(minimal.seq_q, _SEVERAL), "seq_k": max(minimal.seq_k, _SEVERAL)}
    for dtype in (own, *(name for name in DTYPES if name != own)):
        in_dtype = f" in {dtype}" * (dtype != own)
        precision = minimal.precision if dtype == "fp32" else "ieee"
        seen = set()
        changed: list[tuple[dict[str, Any], str]] = [
            ({}, ""),
            ({"grad": backward}, " with a backward"),
            ({"grad": backward, "values": plain}, " with plain values"),
            ({"grad": backward, "values": plain, **sizes}, " with more rows and keys"),
            *(({"grad": backward, "logits": logits}, " with a part more") for logits in _with_a_part(minimal) if told),
        ]
        for changes, words in changed:
            case = change(minimal, dtype=dtype, precision=precision, **changes)
            if case is not None and format_case(case) not in seen:
                seen.add(format_case(case))
                yield case, in_dtype + words


def _sure(key: Key, finding: FindingRecord, follows: bool) -> bool:
    """Whether nothing but a finding can be at work where its case shows a bucket too: the case is minimal, or values say so."""
    told = key.check in VALUES and (named(finding) or (follows and finding.key.check in VALUES))
    return not finding.not_minimal or told or symptom(key) == symptom(finding.key)


def _by_size(key: Key, case: Case, task: Profile, minimal: Case) -> bool:
    """Whether wrong values may come of the size alone: a larger case shows them beside a finding that is not about values."""
    larger = (case.seq_q, case.seq_k) != (minimal.seq_q, minimal.seq_k)
    return larger and key.check in VALUES and task.cause.key.check not in VALUES


def _with_a_part(minimal: Case) -> Iterator[Logits]:
    """Its modifiers with one more that has a gradient."""
    logits = minimal.logits
    if not logits.sink:
        yield replace(logits, sink=True)
    if logits.bias is None:
        yield replace(logits, bias="full")
    if logits.relative_bias is None:
        yield replace(logits, relative_bias=(8, 20, True))


def _accounts(session: Session, task: Profile, sighting: Sighting) -> bool:
    """A diagnosis says more than company does: what it names has to account for values, unless it has no say."""
    diagnosis, case = task.cause.diagnosis, parse_case(sighting.case)
    more = case.logits != parse_case(task.cause.case).logits
    if diagnosis is None or not diagnosis.name or sighting.key.check not in VALUES:
        return not more
    session.emit(Started())
    try:
        subject = session.subject(task.cause.subject_spec)
        told = session.toolkit.attributed(subject, case, sighting.verdict, diagnosis)
        return not more if told is None else told
    except Exception as error:
        print(f"attribution failed: {type(error).__name__}: {error}", file=sys.stderr)
        return False
