"""How a finding is reproduced: a command line, a file for `flashverify replay`, and a script of its own."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.plan_name import PROCESS_CHECKS
from flashverify.campaign.store.files import read_capped
from flashverify.campaign.store.sealing import DamagedRecordError, decode
from flashverify.errors import StoreError, UsageError
from flashverify.judge.record import FORMAT, FindingRecord

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Reproduction", "case_json", "read_reproduction", "replay_line", "repro_script"]

_SCRIPT = '''\
"""Reproduces one finding of flashverify; exits 1 while the failure is there.

{title}

The same from a shell:
    {line}
"""

import contextlib
import os
import sys

CASE = {case}
SUBJECT = {subject}
CHECK = {check}
NUMERICS = {numerics}

# Triton picks interpreter or compiler when it is first imported.
INTERPRET = {interpret}
if INTERPRET:
    os.environ["TRITON_INTERPRET"] = "1"
sys.path.append(os.getcwd())

import flashverify

interpreter = flashverify.corrected_interpreter(numerics=NUMERICS, lockstep=False)
with interpreter if INTERPRET else contextlib.nullcontext():
    result = flashverify.judge_case(SUBJECT, CASE, checks=(CHECK,) if CHECK else None)
for verdict in result.verdicts:
    print(verdict.status.value, verdict.check, verdict.output, verdict.error, verdict.message)
sys.exit(1 if result.failures else 0)
'''


class Reproduction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `flashverify replay` needs; the content of case.json."""

    case: str
    subject: str = ""
    check: str = ""
    format: int = FORMAT
    numerics: str = ""


def replay_line(record: FindingRecord) -> str:
    """The command that reproduces a finding."""
    words = ["flashverify", "replay", record.case, "--subject", record.subject_spec]
    if record.verdict.check not in PROCESS_CHECKS:
        words += ["--check", record.verdict.check]
    if numerics := _numerics(record):
        words += ["--numerics", numerics]
    return shlex.join(words)


def _numerics(record: FindingRecord) -> str:
    """The numerics that the evidence `interpreter (h100)` names, otherwise nothing."""
    kind, _, name = record.evidence.partition(" (")
    return name.removesuffix(")") if kind == "interpreter" else ""


def case_json(record: FindingRecord) -> bytes:
    """case.json of a finding."""
    check = "" if record.verdict.check in PROCESS_CHECKS else record.verdict.check
    found = Reproduction(record.case, record.subject_spec, check, numerics=_numerics(record))
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def repro_script(record: FindingRecord) -> bytes:
    """repro.py of a finding. Everything stored enters it as an ASCII string literal or as text without quotes."""
    check = "" if record.verdict.check in PROCESS_CHECKS else record.verdict.check
    script = _SCRIPT.format(
        title=_plain(
            f"{record.key.subject}: {record.verdict.check} {record.key.error} {record.key.output}: {record.verdict.message}"
        ),
        line=_plain(replay_line(record)),
        case=ascii(record.case),
        subject=ascii(record.subject_spec),
        check=ascii(check),
        interpret=ascii(record.evidence.split()[0] in ("interpreter", "cpu")),
        numerics=ascii(_numerics(record) or "ieee"),
    )
    return script.encode()


def _plain(text: str) -> str:
    """Text that cannot end the docstring it stands in."""
    kept = "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
    return kept.replace("\\", "/").replace('"', "''")[:2000]


def read_reproduction(path: Path) -> Reproduction:
    """From a finding folder, its case.json or its finding.json.

    Raises:
        UsageError: the file is damaged or is something else.
        StoreError: it cannot be read.
    """
    file = path / "case.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise StoreError(f"{path} is not a finding folder: it has no case.json")
    data = read_capped(file, within=path if file != path else None)
    try:
        if file.name.startswith("finding.json"):
            return decode(case_json(decode(data, FindingRecord)), Reproduction)
        return decode(data, Reproduction)
    except DamagedRecordError as error:
        raise UsageError(f"{file} is not the case.json of a finding: {error}") from error
