"""The gallery as a page: one row a kernel, then its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.gallery.catalogue import CATALOGUE
from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.gallery.records import Finding, Judged

__all__ = ["catalogue_text", "page", "progress_line"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def progress_line(judged: Judged) -> str:
    """What the terminal says of one kernel."""
    return f"{judged.release}:{judged.kernel} {judged.version}: {judged.verdict} ({judged.cases} cases)"


def page(rows: Sequence[Judged], command: str) -> str:
    """Markdown: the table, and each finding with its command."""
    lines = [
        "# Gallery\n",
        f"Kernels that others wrote, judged by `{command}`. A ratio above 1 is a finding; what was judged by hand says whether it is a "
        "defect, and where it is described.\n",
        "| package | version | licence | kernel | cases | covering | worst error / bound | verdict | by hand |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        worst = ", ".join(f"{output} {ratio:.3g}" for output, ratio in sorted(row.worst.items()))
        by_hand = "; ".join(_said_by_hand(row))
        cells = (row.distribution, row.version, row.licence, f"`{row.kernel}`: {row.what}")
        numbers = (str(row.cases), str(row.covering), worst, row.verdict, by_hand)
        lines.append("| " + " | ".join(_cell(cell) for cell in (*cells, *numbers)) + " |")
    for row in rows:
        if row.findings:
            lines += ["", f"## {row.distribution} {row.version}: {row.kernel}"]
            lines += [line for finding in row.findings for line in _finding_lines(finding)]
    return "\n".join(lines) + "\n"


def _said_by_hand(row: Judged) -> tuple[str, ...]:
    """What the catalogue says of the kernel's findings, if this is the version that was tried."""
    known = [(release, kernel) for release in CATALOGUE for kernel in release.kernels]
    matching = (
        kernel.findings
        for release, kernel in known
        if (release.name, kernel.name) == (row.release, row.kernel) and row.version.startswith(release.version)
    )
    return next(matching, ())


def _finding_lines(finding: Finding) -> list[str]:
    cases = plural(finding.cases, "case")
    return [f"- {finding.title}, {finding.check}, {cases}: {finding.failure}", f"  `{finding.replay}`"]


def catalogue_text() -> str:
    """What the gallery can judge, a line a kernel."""
    lines = []
    for release in CATALOGUE:
        where = f"{release.distribution} {release.version}" if release.distribution else release.version
        lines.append(f"{release.name}  {where}, {release.licence}")
        lines += [f"  {release.name}:{kernel.name}  {kernel.what}" for kernel in release.kernels]
    return "\n".join(lines)
