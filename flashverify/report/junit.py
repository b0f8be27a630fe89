"""The report as JUnit XML: one test suite a subject, one test case a check."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from flashverify.campaign.card.lines import card_lines
from flashverify.checks.registry import failure_title
from flashverify.judge.verdict import Status
from flashverify.judge.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from flashverify.judge.verdict import Key
    from flashverify.report.content import Report

__all__ = ["render_junit"]


def render_junit(report: Report, known: Set[Key] = frozenset(), exceeded: Sequence[str] = ()) -> bytes:
    """The document. A failing check is a failure, whatever became of its findings; without a verdict there is an error.

    Args:
        report: of a run.
        known: failures that may stand: a check that shows no others is skipped.
        exceeded: ratios above what may stand, in words.
    """
    root = ET.Element("testsuites", name="flashverify")
    for subject, totals in report.aggregate.subjects.items():
        suite = ET.SubElement(root, "testsuite", name=visible(subject), time=f"{totals.seconds:.3f}")
        checks = sorted({check for check, _ in totals.checks})
        for check in checks:
            case = ET.SubElement(
                suite, "testcase", classname=visible(subject), name=visible(check), time=f"{totals.seconds:.3f}"
            )
            failing = {key for key in report.aggregate.failures if (key.subject, key.check) == (subject, check)}
            if failing and failing <= known:
                message = f"{plural(len(failing), 'failure')} known to the baseline"
                ET.SubElement(case, "skipped", message=message)
            elif count := totals.checks[check, Status.FAIL]:
                _problem(case, "failure", f"{count} of {totals.judged} cases failed", _details(report, subject, check))
            elif totals.checks[check, Status.ERROR]:
                _problem(case, "error", f"{totals.checks[check, Status.ERROR]} cases could not be judged", "")
        if refused := totals.outcomes[Status.UNSUPPORTED]:
            case = ET.SubElement(suite, "testcase", classname=visible(subject), name="supports")
            ET.SubElement(case, "skipped", message=f"{refused} cases were refused by the subject")
    if exceeded:
        suite = ET.SubElement(root, "testsuite", name="flashverify baseline")
        case = ET.SubElement(suite, "testcase", classname="flashverify", name="ratios")
        _problem(case, "failure", f"{plural(len(exceeded), 'ratio')} above the baseline", "\n".join(exceeded))
    if report.headline.level == "none":
        suite = ET.SubElement(root, "testsuite", name="flashverify")
        case = ET.SubElement(suite, "testcase", classname="flashverify", name="verdict")
        _problem(case, "error", report.headline.title, report.headline.detail)
    for suite in root:
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(list(suite.iter(tag)))))
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _problem(case: ET.Element, tag: str, message: str, text: str) -> None:
    ET.SubElement(case, tag, message=visible(message)).text = "\n".join(visible(line) for line in text.split("\n"))


def _details(report: Report, subject: str, check: str) -> str:
    blocks = [
        "\n".join(card_lines(card))
        for card in report.findings
        if (card.record.key.subject, card.record.key.check) == (subject, check)
    ]
    blocks += [
        f"{member.failure}\n{member.record.message}\ncase: {member.record.case}\nthe same cause as: {card.title}"
        for card in report.findings
        for member in (card.members.members if card.members is not None else ())
        if (member.record.key.subject, member.record.key.check) == (subject, check)
    ]
    blocks += [
        f"{failure_title(key.check, key.error, key.output)}, not yet made minimal\n{bucket.verdict.message}\ncase: {bucket.case}"
        for key, bucket in report.pending
        if (key.subject, key.check) == (subject, check)
    ]
    return "\n\n".join(blocks)
