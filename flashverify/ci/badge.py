"""The state of a run for a badge: the JSON that badge services read as an endpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from flashverify.ci.outcome import Outcome

__all__ = ["render_badge"]

_COLORS = {0: "brightgreen", 1: "red"}


def render_badge(outcome: Outcome) -> bytes:
    """Label, message and colour."""
    report = outcome.report
    known = len(outcome.held.known) if outcome.held is not None else 0
    unknown = len(report.findings) - known
    if outcome.exit_code == 0:
        message = plural(report.aggregate.judged, "case") + (f", {known} known" if known else "")
    elif outcome.exit_code == 1:
        message = plural(unknown, "finding") if unknown else plural(len(outcome.exceeded), "ratio") + " too large"
    else:
        message = "no verdict"
    color = "yellow" if outcome.exit_code == 0 and report.headline.thin else _COLORS.get(outcome.exit_code, "lightgrey")
    found = {"schemaVersion": 1, "label": "flashverify", "message": message, "color": color}
    return json.dumps(found).encode() + b"\n"
