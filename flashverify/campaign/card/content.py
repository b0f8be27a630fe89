"""What the card of a finding says, before it is terminal text, HTML, Markdown or JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.campaign.card.map_text import tells
from flashverify.campaign.card.members import Members, members_of
from flashverify.campaign.card.repair_words import repair_title, unmended_text
from flashverify.campaign.store.reproduction import replay_line
from flashverify.case.text import parse_case
from flashverify.checks.registry import failure_title
from flashverify.errors import UsageError
from flashverify.judge.wording import number_text, plural, ratio_of

if TYPE_CHECKING:
    from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord, Repair
    from flashverify.judge.wrong_map import WrongMap

__all__ = ["Card", "card_of"]


@dataclass(frozen=True, slots=True)
class Card:
    """A finding in words; a text is empty where nothing is known.

    Args:
        record: what is stored.
        title: what is wrong: the diagnosis where there is one, otherwise what makes it right, otherwise the failure.
        failure: what failed, in words.
        diagnosis: all that is known of the cause, and `evidence`, what that rests on.
        conditions: under which it shows, each as the diagnosis states it.
        form: the numerical form under which the outputs would be within bounds.
        repairs: changes of the subject's source that make it right; `unmended`, why there is none, where that has a reason.
        place: where it shows, in words; `map` as a picture, None where it would show nothing, and `map_case`, in which case that is.
        since: the sizes of the smallest case that fails.
        got, expected, bound: of the worst element, in nine digits; `exact` says which value is expected; `ratio` is error / bound.
        sure: the statements on how sure it is; `confirmed` is False where one speaks against the finding, None where nothing was verified.
        case_title: of the case: minimal, or why it is not.
        replay: the command that reproduces it; `script` a path below the run folder that does.
        members: the other failures of the same cause; None where there are none.
    """

    record: FindingRecord
    title: str
    failure: str
    diagnosis: str
    evidence: str
    conditions: tuple[str, ...]
    form: str
    repairs: tuple[Repair, ...]
    unmended: str
    place: str
    map: WrongMap | None
    map_case: str
    since: str
    got: str
    expected: str
    bound: str
    exact: str
    ratio: float | None
    sure: tuple[str, ...]
    confirmed: bool | None
    case_title: str
    replay: str
    script: str
    members: Members | None


def card_of(record: FindingRecord, script: str = "") -> Card:
    """The card of a stored finding; `script` is the path of its repro.py below the run folder, where there is one."""
    verdict, said = record.verdict, record.confirmation
    found = record.diagnosis
    failure = failure_title(verdict.check, verdict.error, verdict.output)
    shown, map_case = _map(record)
    return Card(
        record=record,
        title=(_title(found) if found is not None else "") or failure,
        failure=failure,
        diagnosis=found.sentence if found else "",
        evidence=found.evidence if found else "",
        conditions=found.conditions if found else (),
        form=found.form if found else "",
        repairs=found.repairs if found else (),
        unmended=unmended_text(found.unmended) if found and not found.repairs else "",
        place=found.place if found else "",
        map=shown,
        map_case=map_case,
        since="" if record.not_minimal else _since(record.case),
        got=number_text(said.got),
        expected=number_text(said.expected),
        bound=number_text(said.bound),
        exact="exact, given the kernel's own O and LSE" if verdict.mode == "conditional" else "exact",
        ratio=ratio_of(verdict.ratio) if verdict.ratio else None,
        sure=tuple(_sure(said)),
        confirmed=_confirmed(said),
        case_title=f"Case, not minimal: {record.not_minimal}" if record.not_minimal else "Minimal case",
        replay=replay_line(record),
        script=script,
        members=members_of(record),
    )


def _title(found: Diagnosis) -> str:
    """What a diagnosis names or reads; where it does neither, what makes the subject right; empty where nothing does."""
    named = _named(found) if found.name or found.reading else ""
    return named or (repair_title(found.repairs[0]) if found.repairs else "")


def _named(found: Diagnosis) -> str:
    """The first sentence of a diagnosis, with the conditions under which it holds where it names a semantics."""
    title = re.split(r"\.(?:\s|$)", found.sentence, maxsplit=1)[0]
    where = (
        ""
        if not found.conditions or "only" in title or found.reading
        else f", only where {' and '.join(found.conditions)}"
    )
    return title + where if title else ""


def _map(record: FindingRecord) -> tuple[WrongMap | None, str]:
    """The larger of the maps that show anything, with its case."""
    found = [(record.first_map, record.first), (record.verdict.map, record.case)]
    telling = [(each, case) for each, case in found if each is not None and tells(each)]
    return max(telling, key=lambda pair: sum(map(len, pair[0].cells)), default=(None, ""))


def _since(text: str) -> str:
    try:
        case = parse_case(text)
    except UsageError:
        return ""
    dims = str(case.dim_qk) if case.dim_qk == case.dim_v else f"{case.dim_qk} of q and k, {case.dim_v} of v"
    heads = (
        plural(case.heads_q, "head")
        if case.heads_q == case.heads_kv
        else f"{case.heads_q} heads of q, {case.heads_kv} of k"
    )
    sizes = [plural(case.seq_q, "row"), plural(case.seq_k, "key"), f"head dim {dims}"]
    sizes += [heads] * (case.heads_q > 1) + [plural(case.batch, "sequence")] * (case.batch > 1)
    return ", ".join(sizes)


def _sure(said: Confirmation) -> list[str]:
    words = [f"failed {said.failed} of {plural(said.repeats, 'fresh run')}" if said.repeats else "not verified yet"]
    if said.agrees is not None:
        words.append(f"{'confirmed' if said.agrees else 'NOT confirmed'} by {said.oracle or 'the oracle'}")
    return words


def _confirmed(said: Confirmation) -> bool | None:
    if not said.repeats and said.agrees is None:
        return None
    return said.agrees is not False and (said.failed > 0 or not said.repeats)
