"""Findings as SARIF 2.1.0, for code scanning: each stands at the definition of its subject, beside the places of its repairs."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from flashverify.campaign.card.lines import card_lines
from flashverify.campaign.card.repair_words import repair_effect, repair_place
from flashverify.campaign.repairing.patch import below, placed
from flashverify.judge.wording import visible
from flashverify.subjects.source import source_of

if TYPE_CHECKING:
    from pathlib import Path

    from flashverify.campaign.card.content import Card
    from flashverify.ci.outcome import Outcome
    from flashverify.judge.record import Repair

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
        "locations": [_location(file, line)],
        "partialFingerprints": {"cause/v1": hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()},
        "properties": {"case": record.case, "replay": card.replay, "ratio": record.verdict.ratio},
    }
    related = [_related(repair) for repair in card.repairs if below(root, repair.file) is not None]
    fixes = [fix for repair in card.repairs if (fix := _fix(repair, root)) is not None]
    found |= {name: part for name, part in (("relatedLocations", related), ("fixes", fixes)) if part}
    if entry is not None:
        found["suppressions"] = [{"kind": "external", "justification": f"{entry.reason} ({entry.link})"}]
    return found


def _location(file: str, line: int) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": visible(file)}, "region": {"startLine": line}}}


def _related(repair: Repair) -> dict[str, Any]:
    return _location(repair.file, repair.line) | {"message": {"text": _words(repair)}}


def _words(repair: Repair) -> str:
    return visible(f"{repair_place(repair)} {repair_effect(repair)}")


def _fix(repair: Repair, root: Path) -> dict[str, Any] | None:
    """A repair as a change of whole lines; None where the file has other lines there, or no line end after them."""
    found = placed(repair, root)
    if found is None or found.line + found.count > len(found.lines):
        return None
    region = {"startLine": found.line, "startColumn": 1, "endLine": found.line + found.count, "endColumn": 1}
    put_in = {"text": "".join(f"{line}\n" for line in found.after)}
    change = {
        "artifactLocation": {"uri": visible(found.name)},
        "replacements": [{"deletedRegion": region, "insertedContent": put_in}],
    }
    return {"description": {"text": _words(repair)}, "artifactChanges": [change]}
