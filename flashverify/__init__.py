"""flashverify: numerical verification and fuzzing of attention kernels against sound per-element bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashverify.api import OracleResult, assert_attention_close, oracle
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.case.text import parse_case
    from flashverify.numerics import Form
    from flashverify.subjects import Contract, Subject, Supports, subject

__all__ = [
    "Case",
    "Contract",
    "Form",
    "OracleResult",
    "Problem",
    "Subject",
    "Supports",
    "assert_attention_close",
    "oracle",
    "parse_case",
    "subject",
]

_HOMES = {
    "Case": "flashverify.case.case",
    "Contract": "flashverify.subjects",
    "Form": "flashverify.numerics",
    "OracleResult": "flashverify.api",
    "Problem": "flashverify.case.problem",
    "Subject": "flashverify.subjects",
    "Supports": "flashverify.subjects",
    "assert_attention_close": "flashverify.api",
    "oracle": "flashverify.api",
    "parse_case": "flashverify.case.text",
    "subject": "flashverify.subjects",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that the commands that need no torch start without it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'flashverify' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
