"""Reading the case of `flashverify replay`, and its result in words."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from flashverify.campaign.repro import Reproduction, read_reproduction
from flashverify.case.text import VERSION, format_case, parse_case
from flashverify.errors import UsageError
from flashverify.judge.verdict import CaseResult, Status, from_hex

__all__ = ["read_case", "result_code", "result_lines"]

_MAX_TEXT = 1024 * 1024


def read_case(argument: str, stdin: TextIO) -> Reproduction:
    """A case from its text form, a case.json, a finding.json, a finding folder, or `-` for text on stdin.

    Raises:
        UsageError: it is none of these.
        StoreError: the file cannot be read.
    """
    if argument == "-":
        found = Reproduction(stdin.read(_MAX_TEXT))
    elif argument.split(maxsplit=1)[:1] == [VERSION]:
        found = Reproduction(argument)
    elif Path(argument).exists():
        found = read_reproduction(Path(argument))
    else:
        accepted = f"text that starts with {VERSION!r}, a case.json, a finding folder, or - for stdin"
        raise UsageError(f"case={argument[:200]!r} is not accepted: {accepted}")
    return Reproduction(format_case(parse_case(found.case)), found.subject, found.check, numerics=found.numerics)


def result_code(result: CaseResult) -> int:
    """0 every check passed, 1 a check failed, 3 nothing was judged."""
    if result.failures:
        return 1
    judged = any(v.status in (Status.PASS, Status.EXEMPT) for v in result.verdicts)
    return 0 if judged and not any(v.status is Status.ERROR for v in result.verdicts) else 3


def result_lines(result: CaseResult) -> list[str]:
    """The verdict, then every answer that is not a pass, then the ratios."""
    word = {0: "PASS", 1: "FAIL", 3: "NO VERDICT"}[result_code(result)]
    lines = [f"{word}: {result.subject} ({result.evidence}, {result.seconds:.2f} s)", result.case]
    for v in result.verdicts:
        if v.status is not Status.PASS:
            about = " ".join(part for part in (v.check, v.output, v.mode, v.error) if part)
            lines.append(f"  {v.status.value}: {about}: {v.message}")
    lines += [
        f"  {s.output} {s.mode}: worst error / bound {from_hex(s.worst):.4g} at {list(s.index)}" for s in result.stats
    ]
    lines += [f"  warning: {warning}" for warning in result.warnings]
    return ["".join(c if c.isprintable() else "?" for c in line) for line in lines]
