"""The report as JSON, for programs.

A ratio is `{"value": number or null, "hex": text}`: `hex` is exact, `inf` and `nan` included; `value` is null where JSON has no
number for it. The whole ratio is null where nothing was judged.

    format        1; grows when a field changes its meaning or goes
    verdict       "clean", "findings" or "none"; title, detail, notes: the same in words
    cases         judged, covering, and by outcome: pass, fail, exempt, unsupported, error
    seconds       wall clock, or the time of judging where the run has not ended
    worst         ratio, case, index: the worst element of all; null where none was judged
    thin          whether it is clean over fewer than 100 cases that count as coverage
    findings      the stored records, with title and failure in words, the sizes of the smallest case, how sure it is (sure in
                  words, confirmed true, false or null), also (the other failures of the same cause), replay and script
    pending       failures that no finding stands for yet: key, count, case, message
    subjects      by name: outcomes, covering, seconds, evidence, checks, form (text, and form_table: part, name, value), groups
      tested      a line for each axis: axis, tested, missing
      groups      one for each dtype, output, mode: cases, elements, exempt, uninformative, zeros_would_pass (cases), bias (mean signed
                  ratio over cases, with the radius of its 99.9 % confidence sequence), worst, percentiles by name, and the
                  worst ratio by_length ({up_to, ratio}; up_to is the largest length of a bucket), by_regime, by_mask,
                  by_position ({up_to, bin, ratio}; bin is a sixteenth of the rows, of the keys for dk and dv)
    unsupported, errors, warnings       cases by text
    sampled                             rows and keys that the oracle judged of cases too large for all of them, or null
    refusals      null, or what became of cases outside the declarations: cases (subject, case, property, outcome, message), counts by
                  outcome, unfinished
    run           the stored header; summary: the stored summary or null
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.campaign.card.fields import card_fields
from flashverify.judge.verdict import Status, to_hex
from flashverify.report.form_table import form_rows
from flashverify.report.group import PERCENTILES, Group, GroupKey, Peak

if TYPE_CHECKING:
    from collections import Counter

    from flashverify.campaign.card.content import Card
    from flashverify.report.aggregate import Totals
    from flashverify.report.content import Report

__all__ = ["FORMAT", "ratio_json", "render_json"]

FORMAT = 1


def render_json(report: Report) -> bytes:
    """The document, indented, the same bytes for the same report."""
    aggregate = report.aggregate
    document = {
        "format": FORMAT,
        "verdict": report.headline.level,
        "title": report.headline.title,
        "detail": report.headline.detail,
        "notes": report.headline.notes,
        "thin": report.headline.thin,
        "cases": {
            "judged": aggregate.judged,
            "covering": aggregate.covering,
            **{s.value: aggregate.outcomes[s] for s in Status},
        },
        "seconds": report.seconds,
        "worst": _peak(aggregate.worst),
        "findings": [_finding(finding) for finding in report.findings],
        "pending": [
            {"key": key, "count": bucket.count, "case": bucket.case, "message": bucket.verdict.message}
            for key, bucket in report.pending
        ],
        "subjects": {
            name: _subject(totals, report.record.form.get(name, ""), aggregate.of_subject(name))
            for name, totals in aggregate.subjects.items()
        },
        "unsupported": _counts(aggregate.unsupported),
        "errors": _counts(aggregate.errors),
        "warnings": _counts(aggregate.warnings),
        "sampled": None if aggregate.sampled is None else _full(aggregate.sampled),
        "refusals": None if report.refusals is None else _full(report.refusals) | {"counts": report.refusals.counts},
        "run": _full(report.record),
        "summary": _full(report.summary) if report.summary else None,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def ratio_json(ratio: float | None) -> dict[str, Any] | None:
    """A ratio as described in the module's docstring."""
    return None if ratio is None else {"value": ratio if math.isfinite(ratio) else None, "hex": to_hex(ratio)}


def _full(record: msgspec.Struct) -> dict[str, Any]:
    """Every field, also those at their default."""
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _finding(finding: Card) -> dict[str, Any]:
    return {
        **card_fields(finding),
        "script": finding.script,
        "ratio": ratio_json(finding.ratio),
        **_full(finding.record),
        "verdict": _full(finding.record.verdict),
        "confirmation": _full(finding.record.confirmation),
        "diagnosis": None if finding.record.diagnosis is None else _full(finding.record.diagnosis),
    }


def _subject(totals: Totals, form: str, groups: list[tuple[GroupKey, Group]]) -> dict[str, Any]:
    checks: dict[str, dict[str, int]] = {}
    for (check, status), count in sorted(totals.checks.items()):
        checks.setdefault(check, {})[status.value] = count
    return {
        "outcomes": {status.value: totals.outcomes[status] for status in Status},
        "judged": totals.judged,
        "covering": totals.covering,
        "seconds": totals.seconds,
        "evidence": _counts(totals.evidence),
        "checks": checks,
        "tested": [
            {"axis": r.axis, "tested": r.tested, "missing": r.missing} for r in totals.tested.table(totals.evidence)
        ],
        "form": form,
        "form_table": [{"part": part, "name": name, "value": value} for part, name, value in form_rows(form)],
        "groups": [_group(key, group) for key, group in groups],
    }


def _group(key: GroupKey, group: Group) -> dict[str, Any]:
    return {
        "dtype": key.dtype,
        "output": key.output,
        "mode": key.mode,
        "cases": group.cases,
        "elements": group.elements,
        "exempt": group.exempt,
        "uninformative": group.uninformative,
        "zeros_would_pass": group.dull,
        "bias": {"cases": group.bias.count, "mean": group.bias.mean, "radius": group.bias.radius},
        "worst": _peak(group.worst),
        "percentiles": {f"p{q:g}": ratio_json(value) for q, value in zip(PERCENTILES, group.percentiles, strict=True)},
        "by_length": [{"up_to": _end(bucket), "ratio": ratio_json(r)} for bucket, r in sorted(group.lengths.items())],
        "by_regime": {regime: ratio_json(r) for regime, r in sorted(group.regimes.items())},
        "by_mask": {mask: ratio_json(r) for mask, r in sorted(group.masks.items())},
        "by_position": [
            {"up_to": _end(bucket), "bin": place, "ratio": ratio_json(r)}
            for (bucket, place), r in sorted(group.cells.items())
        ],
    }


def _peak(peak: Peak | None) -> dict[str, Any] | None:
    return None if peak is None else {"ratio": ratio_json(peak.ratio), "case": peak.case, "index": peak.index}


def _end(bucket: int) -> int:
    return 0 if bucket < 0 else 2**bucket


def _counts(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))
