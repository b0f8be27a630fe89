"""The report as Markdown: short enough for a comment on a pull request or the summary of a CI job."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flashverify.campaign.refusals.words import ADVICE, OUTCOMES, counts_text
from flashverify.judge.record import THIN
from flashverify.judge.verdict import Status
from flashverify.judge.wording import count_text, duration_text, evidence_text, plural, share_text, worse
from flashverify.report.axes import dtype_rank, output_rank
from flashverify.report.content import RATIO_SENTENCE, Report
from flashverify.report.form_table import form_rows
from flashverify.report.markdown_finding import finding_sections
from flashverify.report.markdown_text import code, fence, folded, ratio_cell, table, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.report.aggregate import Totals

__all__ = ["MAX_CHARACTERS", "render_markdown"]

MAX_CHARACTERS = 60_000
"""GitHub refuses comments above 65,536 characters."""

_MARKS = {"clean": "✅", "findings": "❌", "none": "⚠️"}
_MOST_ROWS = 15


def render_markdown(report: Report) -> str:
    """The page; sections that would exceed `MAX_CHARACTERS` are left out and named."""
    kept, size, dropped = [], 0, 0
    for section in _sections(report):
        if size + len(section) > MAX_CHARACTERS:
            dropped += 1
            continue
        kept.append(section)
        size += len(section) + 2
    if dropped:
        kept.append(f"*{plural(dropped, 'section')} left out for length; report.html and report.json have everything.*")
    return "\n\n".join(kept) + "\n"


def _sections(report: Report) -> Iterator[str]:
    aggregate, headline = report.aggregate, report.headline
    yield f"# {_MARKS[headline.level]} {words(headline.title)}"
    yield "\n".join([words(headline.detail), *(f"- {words(note)}" for note in headline.notes)]).replace(
        "\n-", "\n\n-", 1
    )
    yield (
        f"{plural(aggregate.judged, 'case')} judged, {count_text(aggregate.outcomes[Status.FAIL])} failed, worst ratio "
        f"{ratio_cell(aggregate.worst.ratio if aggregate.worst else None)}, coverage {share_text(aggregate.covering, aggregate.judged)}, "
        f"{duration_text(report.seconds)}. {RATIO_SENTENCE}"
    )
    yield from finding_sections(report)
    yield from _refusals(report)
    yield from _tested(report)
    yield from _accuracy(report)
    yield from _counts(report)
    yield _environment(report)


def _refusals(report: Report) -> Iterator[str]:
    if report.refusals is None:
        return
    rows = [
        [words(OUTCOMES[each.outcome]), code(each.subject), words(each.property), words(each.message), code(each.case)]
        for each in report.refusals.bad
    ]
    text = f"## Outside the declaration\n\n{words(counts_text(report.refusals))}."
    if rows:
        head = ["Outcome", "Subject", "Property", "What was seen", "Case"]
        text += f" {words(ADVICE)}\n\n{table(head, rows[:_MOST_ROWS], left=5)}"
    yield text


def _tested(report: Report) -> Iterator[str]:
    for subject, totals in report.aggregate.subjects.items():
        rows = [
            [words(row.axis), words(row.tested), words(row.missing)] for row in totals.tested.table(totals.evidence)
        ]
        if rows:
            title = f"## Tested and not tested: {code(subject)}\n\n{_cover(totals)}"
            yield f"{title}\n\n{table(['', 'Tested (cases)', 'Not tested'], rows, left=3)}"


def _cover(totals: Totals) -> str:
    thin = ", thin" if totals.covering < THIN else ""
    return f"{plural(totals.judged, 'case')} judged, {count_text(totals.covering)} of them count as coverage{thin}."


def _accuracy(report: Report) -> Iterator[str]:
    for subject, totals in report.aggregate.subjects.items():
        groups = report.aggregate.of_subject(subject)
        evidence = " and ".join(words(evidence_text(e)) for e in sorted(totals.evidence)) or "unknown evidence"
        title = f"## Accuracy of {code(subject)}\n\n{plural(totals.judged, 'case')} on {evidence}."
        if not groups:
            yield f"{title} No output was compared with a bound."
            continue
        dtypes = sorted({key.dtype for key, _ in groups}, key=dtype_rank)
        worst: dict[tuple[str, str], float] = {}
        for key, group in groups:
            if group.worst and worse(worst.get((key.output, key.dtype)), group.worst.ratio):
                worst[key.output, key.dtype] = group.worst.ratio
        outputs = sorted({key.output for key, _ in groups}, key=output_rank)
        rows = [[code(output), *(ratio_cell(worst.get((output, dtype))) for dtype in dtypes)] for output in outputs]
        yield f"{title} Worst ratio of each output, end to end or conditional:\n\n" + table(
            ["Output", *map(words, dtypes)], rows
        )
        details = [
            [
                words(key.dtype),
                code(key.output),
                words(key.mode),
                count_text(group.cases),
                *map(ratio_cell, group.percentiles),
                ratio_cell(group.worst.ratio if group.worst else None),
                share_text(group.exempt, group.elements),
                share_text(group.uninformative, group.elements),
                share_text(group.dull, len(group.ratios)),
                group.bias.text(),
            ]
            for key, group in groups
        ]
        head = [
            "Data type",
            "Output",
            "Mode",
            "Cases",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "Worst",
            "Exempt",
            "Uninformative",
            "Zeros would pass",
            "Bias",
        ]
        yield folded(
            "Percentiles of the worst ratio of a case, and the mean signed ratio", table(head, details, left=3)
        )


def _counts(report: Report) -> Iterator[str]:
    aggregate = report.aggregate
    statuses = [status for status in Status if aggregate.outcomes[status]]
    if statuses:
        rows = [[code(name), *(count_text(t.outcomes[s]) for s in statuses)] for name, t in aggregate.subjects.items()]
        yield "## Cases and checks\n\n" + table(["Subject", *(s.value for s in statuses)], rows)
    checks = Counter(
        {
            (check, status): 0
            for t in aggregate.subjects.values()
            for check, _ in t.checks
            for status in (Status.PASS, Status.FAIL)
        }
    )
    for totals in aggregate.subjects.values():
        checks.update(totals.checks)
    names = sorted({check for check, _ in checks})
    if names:
        rows = [[code(n), count_text(checks[n, Status.PASS]), count_text(checks[n, Status.FAIL])] for n in names]
        yield table(["Check", "pass", "fail"], rows)
    if aggregate.sampled is not None:
        yield f"Sampled: {aggregate.sampled}. Relations and counting look at the others."
    for title, counter in (
        ("Refused by the subject", aggregate.unsupported),
        ("Not judged because the harness failed", aggregate.errors),
        ("Remarks that are no failures", aggregate.warnings),
    ):
        if counter:
            most = sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:_MOST_ROWS]
            yield folded(
                f"{title}: {plural(counter.total(), 'case')}",
                table(["Text", "Cases"], [[code(t, limit=300), count_text(n)] for t, n in most]),
            )


def _environment(report: Report) -> str:
    record = report.record
    facts = {"subjects": ", ".join(record.subjects) or "none", "seed": str(record.seed)}
    facts |= {"profile": record.profile} if record.profile else {}
    facts |= dict(sorted(record.environment.items()))
    for subject, form in sorted(record.form.items()):
        facts |= {f"form of {subject}: {part} {name}".rstrip(): value for part, name, value in form_rows(form)}
    body = table(["", ""], [[code(name), code(value)] for name, value in facts.items()], left=2)
    return folded("Environment", body + (f"\n\n{fence(record.command, 'sh')}" if record.command else ""))
