"""A comparison as JUnit XML: one test for the answer, one for each output."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from flashverify.judge.wording import ratio_text, visible

if TYPE_CHECKING:
    from flashverify.comparing.comparison import Comparison

__all__ = ["render_junit"]


def render_junit(comparison: Comparison) -> str:
    """The document; `do not merge` is a failure of the first test, a reason to look is none."""
    suite = ET.Element("testsuite", name="flashverify compare")
    case = ET.SubElement(suite, "testcase", classname="flashverify.compare", name="may this change be merged")
    if comparison.exit_code:
        body = "\n".join(visible(text) for text in comparison.to_text().split("\n"))
        ET.SubElement(case, "failure", message=visible(comparison.sentence)).text = body
    else:
        ET.SubElement(case, "system-out").text = visible(comparison.sentence)
    rows = comparison.elements.rows if comparison.elements is not None else ()
    for row in rows:
        case = ET.SubElement(suite, "testcase", classname="flashverify.compare", name=f"{row.output} {row.dtype}")
        properties = ET.SubElement(case, "properties")
        for name, value in (
            ("worst_before", ratio_text(row.before.worst)),
            ("worst_after", ratio_text(row.after.worst)),
            ("changed_elements", f"{row.changed} of {row.elements}"),
        ):
            ET.SubElement(properties, "property", name=name, value=value)
        if row.after.worst > 1 >= row.before.worst:
            ET.SubElement(case, "failure", message=f"worst ratio {ratio_text(row.after.worst)}").text = visible(
                row.after.case
            )
    failures = len(list(suite.iter("failure")))
    for name, count in (
        ("tests", len(list(suite.iter("testcase")))),
        ("failures", failures),
        ("errors", 0),
        ("skipped", 0),
    ):
        suite.set(name, str(count))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
