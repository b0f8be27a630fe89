"""Findings as SARIF 2.1.0, for code scanning: each stands at the definition of its subject."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from flashverify.campaign.card.lines import card_lines
from flashverify.judge.wording import visible
from flashverify.subjects.source import source_of

if TYPE_CHECKING:
    from pathlib import Path

    from flashverify.campaign.card.content import Card
    from flashverify.ci.outcome import Outcome

__all__ = ["place_of", "render_sarif"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_MOST = 1000


def render_sarif(outcome: Outcome, root: Path, version: str) -> bytes:
    """The document.

    Args:
        outcome: of the run.
        root: folder of the repository, from which files are named.
        version: of flashverify.
    """
    cards = outcome.report.findings[:_MOST]
    rules = {_rule(card): card.failure for card in cards}
    driver = {
        "name": "flashverify",
        "semanticVersion": version,
        "rules": [{"id": name, "shortDescription": {"text": visible(text)}} for name, text in sorted(rules.items())],
    }
    invocation = {"executionSuccessful": outcome.exit_code in (0, 1), "exitCode": outcome.exit_code}
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [_result(card, outcome, root) for card in cards],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2).encode() + b"\n"


def place_of(spec: str, root: Path) -> tuple[str, int]:
    """The file of a subject below a folder, and the line that defines it; the file that its name suggests where there is none."""
    found = source_of(spec)
    if found is not None and found[0].is_relative_to(root):
        return found[0].relative_to(root).as_posix(), found[1]
    module = spec.partition(":")[0]
    return (module if module.endswith(".py") else f"{module.replace('.', '/')}.py"), 1


def _rule(card: Card) -> str:
    key = card.record.key
    return f"{key.check}/{key.error}" if key.error and key.error != key.check else key.check


def _result(card: Card, outcome: Outcome, root: Path) -> dict[str, Any]:
    record, entry = card.record, outcome.known_as(card)
    file, line = place_of(record.subject_spec, root)
    cause = record.diagnosis.name if record.diagnosis is not None else ""
    identity = "\0".join((record.subject_spec, cause or record.key.slug()))
    found: dict[str, Any] = {
        "ruleId": _rule(card),
        "level": "error",
        "message": {"text": "\n".join(card_lines(card))},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": visible(file)}, "region": {"startLine": line}}}
        ],
        "partialFingerprints": {"cause/v1": hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()},
        "properties": {"case": record.case, "replay": card.replay, "ratio": record.verdict.ratio},
    }
    if entry is not None:
        found["suppressions"] = [{"kind": "external", "justification": f"{entry.reason} ({entry.link})"}]
    return found
