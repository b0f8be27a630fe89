"""Writes the outputs for a CI that were asked for, and those of GitHub Actions where a run is part of them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify.campaign.store.files import write_atomic
from flashverify.campaign.store.reader import open_run
from flashverify.ci.badge import render_badge
from flashverify.ci.comment import comment, marked
from flashverify.ci.github import annotation_lines, append_summary, in_github
from flashverify.ci.outcome import Outcome
from flashverify.ci.sarif import render_sarif
from flashverify.errors import FlashverifyError
from flashverify.report.content import build_report
from flashverify.report.junit import render_junit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.baseline.assessment import Assessment

__all__ = ["CiFiles", "write_comparison_ci"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CiFiles:
    """The files that were asked for; None where one was not.

    Attributes:
        junit: JUnit XML.
        sarif: SARIF 2.1.0.
        comment: Markdown for a pull request.
        badge: JSON of a badge.
    """

    junit: str | None = None
    sarif: str | None = None
    comment: str | None = None
    badge: str | None = None

    @classmethod
    def take(cls, options: dict[str, Any]) -> CiFiles:
        """From the options of a command, out of which they are taken."""
        return cls(**{name: options.pop(name, None) for name in cls.__slots__})

    def write(self, run: Path, headline: str, exit_code: int, held: Assessment | None) -> None:
        """Write them, and what GitHub Actions shows. What cannot be written is a warning: the verdict stands without it."""
        if not any((self.junit, self.sarif, self.comment, self.badge)) and not in_github(os.environ):
            return
        try:
            outcome = Outcome(build_report(open_run(run)), headline, exit_code, held)
            self._write(outcome)
            if in_github(os.environ):
                cards = [(card, outcome.known_as(card)) for card in outcome.report.findings]
                print("\n".join(annotation_lines(cards, outcome.errors, Path.cwd())), file=sys.stderr)
                _summary(os.environ, comment(outcome))
        except (FlashverifyError, OSError) as error:
            print(f"flashverify: warning: an output for the CI is missing: {error}", file=sys.stderr)

    def _write(self, outcome: Outcome) -> None:
        if self.junit:
            _put(self.junit, render_junit(outcome.report, outcome.known_buckets, outcome.exceeded))
        if self.sarif:
            _put(self.sarif, render_sarif(outcome, Path.cwd(), version("flashverify")))
        if self.comment:
            _put(self.comment, comment(outcome).encode())
        if self.badge:
            _put(self.badge, render_badge(outcome))


def write_comparison_ci(markdown: str, path: str | None) -> None:
    """The comment about a comparison, and the summary of the step in GitHub Actions.

    Raises:
        StoreError: the file cannot be written.
    """
    if path:
        _put(path, marked(markdown).encode())
    if in_github(os.environ):
        _summary(os.environ, markdown)


def _put(path: str, data: bytes) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(Path(path), data)


def _summary(environ: Mapping[str, str], text: str) -> None:
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        append_summary(Path(path), text)
