"""Every check there is, in the order in which a case is put to them, and every class of failure with its title.

A new check is a file that declares its `CheckSpec`, and a line in `CHECK_SPECS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks import (
    addresses,
    against_oracle,
    config,
    counting,
    determinism,
    memory,
    padding,
    relations,
    reuse,
    sanitizer,
    statistics,
)
from flashverify.checks.outcomes import OUTCOMES

if TYPE_CHECKING:
    from flashverify.checks.spec import CheckSpec, ErrorClass

__all__ = ["CHECKS", "CHECK_SPECS", "check_spec", "error_class", "failure_title"]

CHECK_SPECS: tuple[CheckSpec, ...] = (
    memory.SPEC,
    against_oracle.ACCURACY,
    against_oracle.NONFINITE,
    statistics.SPEC,
    padding.SPEC,
    sanitizer.SPEC,
    addresses.SPEC,
    determinism.SPEC,
    relations.SPEC,
    counting.SPEC,
    config.SPEC,
    reuse.SPEC,
)
CHECKS = tuple(spec.name for spec in CHECK_SPECS)
"""The names of the checks that a case can be put to."""

_SPECS = {spec.name: spec for spec in CHECK_SPECS}
_ERRORS = {spec.name: spec.errors for spec in CHECK_SPECS} | OUTCOMES


def check_spec(name: str) -> CheckSpec:
    """The check of that name; raises KeyError where there is none."""
    return _SPECS[name]


def error_class(check: str, error: str) -> ErrorClass | None:
    """What a verdict's `check` and `error` stand for; None where no check declares such a class."""
    return next((known for known in _ERRORS.get(check, ()) if known.covers(error)), None)


def failure_title(check: str, error: str, output: str) -> str:
    """A failure in words; of classes that only older versions knew, their names."""
    known = error_class(check, error)
    if known is None:
        return " ".join(word for word in (check, "fails:", error, output) if word)
    return known.title.format(output=output or "an output", error=error)
