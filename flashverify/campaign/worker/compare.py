"""Whether two explained findings come and go together: one case that shows both is changed in many ways, one at a time."""

from __future__ import annotations

import math
import sys
import time
from itertools import chain, islice
from typing import TYPE_CHECKING

from flashverify.campaign.causes.agreement import Agreement
from flashverify.campaign.causes.needs import small
from flashverify.campaign.causes.sighting import sightings_of
from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES, symptom
from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.protocol import Compared
from flashverify.campaign.worker.attribute import Cause
from flashverify.campaign.worker.neighbours import grown, simpler
from flashverify.campaign.worker.replays import Replays
from flashverify.case.case import Values
from flashverify.case.changes import change
from flashverify.case.text import parse_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.campaign.protocol import Compare
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case

__all__ = ["compare"]

_CHANGES = 20
"""Changed cases that are judged."""


def compare(session: Session, task: Compare) -> None:
    """Emit `Compared`, what was found until the limit."""
    end = math.inf if task.limit is None else time.monotonic() + task.limit
    replays, sighting = Replays(session, task), task.asked[0]
    why, at_work = "", False
    try:
        why = _of_the_minimal_case(session, task, sighting) or _agreement(replays, task, sighting, end).words
        sizes = sighting.key.check not in TOLD_BY_VALUES
        at_work = not why and all(
            time.monotonic() < end and replays.at_work(parse_case(text), sizes=sizes) for text in sighting.alone
        )
    except Exception as error:  # what cannot be told stays two findings
        print(f"comparison failed: {type(error).__name__}: {error}", file=sys.stderr)
    session.emit(Compared(task.cause.key, sighting.key, why, at_work))


def _of_the_minimal_case(session: Session, task: Compare, sighting: Sighting) -> str:
    """What is asked of a failure as it was first seen, asked of its minimal case, on which nothing else hides whose work it is."""
    case, plan = parse_case(sighting.alone[0]), str(PlanName.of_check(sighting.key.check))
    minimal = sightings_of(session.judge(task.cause.subject_spec, case, plan)).get(sighting.key)
    cause = Cause(session, task)
    return "" if minimal is None else cause.at_once(minimal) or cause.by_trials(minimal) or ""


def _agreement(replays: Replays, task: Compare, sighting: Sighting, end: float) -> Agreement:
    """What changed cases show; nothing of two small errors, since it is chance on which case such a value is outside its bound."""
    if small(task.cause.verdict) and small(sighting.verdict):
        return Agreement()
    found, mine, other = Agreement(), symptom(task.cause.key), symptom(sighting.key)
    for case in _both(replays, sighting):
        looks = (replays.look(case, mine[0]), replays.look(case, other[0]))
        if not (mine in looks[0].seen and other in looks[1].seen):
            continue
        for changed in islice(filter(replays.accepted, chain(grown(case), simpler(case))), _CHANGES):
            if time.monotonic() > end or found.denied:
                break
            a, b = replays.look(changed, mine[0]), replays.look(changed, other[0])
            if a.asked(mine) and b.asked(other):
                found.add(mine in a.seen, other in b.seen, _kind(case, changed))
        break
    return found


def _both(replays: Replays, sighting: Sighting) -> Iterator[Case]:
    """The case, as it is and with plain values."""
    case = parse_case(sighting.case)
    yield case
    plain = change(case, values=Values(seed=case.values.seed))
    if plain is not None and replays.accepted(plain):
        yield plain


def _kind(case: Case, changed: Case) -> str:
    """The one thing in which a changed case differs: a part, the rows, the keys, heads and so on; empty for several."""
    found = {name for name, before in _things(case).items() if before != _things(changed)[name]}
    parts = (set(case.mask.parts()) | set(case.logits.names())) ^ (
        set(changed.mask.parts()) | set(changed.logits.names())
    )
    return next(iter(found | parts)) if len(found | parts) == 1 else ""


def _things(case: Case) -> dict[str, object]:
    return {
        "rows": case.seq_q,
        "keys": case.seq_k,
        "sequences": case.batch,
        "heads": (case.heads_q, case.heads_kv),
        "channels": (case.dim_qk, case.dim_v),
        "dropout": case.dropout,
        "scale": case.scale,
        "storage": case.storage,
        "launch": case.launch,
    }
