"""Reading the case of `flashverify replay`, and its result in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from flashverify.campaign.card.lines import diagnosis_lines
from flashverify.campaign.card.map_text import LEGEND, map_caption, map_lines, tells
from flashverify.campaign.protocol import Judge
from flashverify.campaign.store.reproduction import Reproduction, read_reproduction
from flashverify.campaign.supervisor.first_cases import inability_in
from flashverify.campaign.supervisor.probe import Probe
from flashverify.case.text import VERSION, format_case, parse_case
from flashverify.errors import UsageError
from flashverify.judge.verdict import CaseResult, Status, from_hex

if TYPE_CHECKING:
    from flashverify.campaign.supervisor.process import ProcessSetup
    from flashverify.judge.record import Diagnosis

__all__ = ["read_case", "replay_case", "result_code", "result_lines"]

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


def replay_case(
    subject: str, case: str, plan: str, setup: ProcessSetup, *, diagnose: bool
) -> tuple[CaseResult, Diagnosis | None]:
    """The verdicts on one case, judged in a process of its own, and, where asked for, what explains its first failure.

    Raises:
        FlashverifyError: the subject cannot be loaded, or the harness failed.
    """
    with Probe(setup) as probe:
        result = probe.judge(Judge(subject, case, plan)).result
        if not diagnose or not result.failures:
            return result, None
        keys = [failure.key(result.subject, parse_case(case).dtype) for failure in result.failures]
        key = next((key for key in keys if key.check in ("accuracy", "nonfinite")), keys[0])
        return result, probe.judge(Judge(subject, case, plan, diagnose=key)).diagnosis


def result_code(result: CaseResult) -> int:
    """0 every check passed, 1 a check failed, 3 nothing was judged, as where the subject cannot run."""
    if result.failures:
        return 1 if inability_in(result) is None else 3
    judged = any(v.status in (Status.PASS, Status.EXEMPT) for v in result.verdicts)
    return 0 if judged and not any(v.status is Status.ERROR for v in result.verdicts) else 3


def result_lines(result: CaseResult, diagnosis: Diagnosis | None = None) -> list[str]:
    """The verdict, then every answer that is not a pass, where the first of them fails, the ratios, and the diagnosis."""
    word = {0: "PASS", 1: "FAIL", 3: "NO VERDICT"}[result_code(result)]
    lines = [f"{word}: {result.subject} ({result.evidence}, {result.seconds:.2f} s)", result.case]
    if (lacks := inability_in(result)) is not None:
        lines.append(f"  the subject could not run: {lacks.reason}. {lacks.advice}")
    for v in result.verdicts:
        if v.status is not Status.PASS:
            about = " ".join(part for part in (v.check, v.output, v.mode, v.error) if part)
            lines.append(f"  {v.status.value}: {about}: {v.message}")
            lines += [f"    {line}" for line in v.traceback.splitlines()]
    found = next((v.map for v in result.failures if v.map is not None and tells(v.map)), None)
    if found is not None:
        lines += [f"  map: {map_caption(found)}; {LEGEND}"] + [f"    {line}" for line in map_lines(found)]
    lines += [
        f"  {s.output} {s.mode}: worst error / bound {from_hex(s.worst):.4g} at {list(s.index)}" for s in result.stats
    ]
    if result.sampled is not None:
        lines.append(f"  sampled: {result.sampled}; relations and counting look at the others")
    lines += [f"  quantisation, no part of the verdict: {error}" for error in result.quantisation]
    lines += [f"  warning: {warning}" for warning in result.warnings]
    lines += diagnosis_lines(diagnosis)
    return ["".join(c if c.isprintable() else "?" for c in line) for line in lines]
