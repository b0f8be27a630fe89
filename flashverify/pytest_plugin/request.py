"""What `@pytest.mark.flashverify(...)` asks for. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Case
from flashverify.case.space.profiles import PROFILES
from flashverify.case.text import format_case, parse_case
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import pytest

__all__ = ["CASES", "STANDARD", "Asked", "asked_of", "whole_number"]

CASES = 200
"""Drawn cases of a marker that names no number."""
STANDARD = "standard"
"""`cases=` of the fixed matrix of `flashverify run`."""
_ACCEPTED = "flashverify(subject, cases=200, profile=None, checks=None)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A marker, read.

    Attributes:
        subject: as given: what `--subject` takes, or a subject.
        number: of drawn cases; 0 for the fixed matrix or a list.
        listed: text forms of a list of cases.
        profile: how large drawn cases are; empty is that of the device.
        checks: names of the checks to make; empty for all that the case draws.
    """

    subject: Any
    number: int = 0
    listed: tuple[str, ...] = ()
    profile: str = ""
    checks: tuple[str, ...] = ()


def asked_of(mark: pytest.Mark, *, number: str | None = None, profile: str | None = None) -> Asked:
    """Read a marker.

    Args:
        mark: `flashverify`.
        number: `--flashverify-cases`, in place of a number of drawn cases.
        profile: `--flashverify-profile`, in place of the marker's.

    Raises:
        UsageError: an argument or an option is not accepted.
    """
    given = dict(mark.kwargs)
    if len(mark.args) > 1 or (mark.args and "subject" in given):
        raise UsageError(f"@pytest.mark.flashverify{mark.args!r:.100} is not accepted: {_ACCEPTED}")
    if mark.args:
        given["subject"] = mark.args[0]
    if unknown := sorted(given.keys() - {"subject", "cases", "profile", "checks"}):
        raise UsageError(f"{unknown[0]}= is not accepted by @pytest.mark.flashverify: {_ACCEPTED}")
    if not given.get("subject"):
        raise UsageError(f"@pytest.mark.flashverify names no subject: {_ACCEPTED}")
    drawn, listed = _cases(given.get("cases", CASES))
    if drawn and number is not None:
        drawn = whole_number(number, "--flashverify-cases", least=1)
    return Asked(
        subject=given["subject"],
        number=drawn,
        listed=listed,
        profile=_profile(profile, "--flashverify-profile") or _profile(given.get("profile"), "profile"),
        checks=_checks(given.get("checks")),
    )


def whole_number(value: object, name: str, *, least: int) -> int:
    """An integer of an option; raises UsageError."""
    try:
        found = int(str(value))
    except ValueError:
        found = least - 1
    if found < least:
        raise UsageError(f"{name}={value!r} is not accepted: an integer >= {least}")
    return found


def _cases(value: object) -> tuple[int, tuple[str, ...]]:
    accepted = f"a number of cases, {STANDARD!r}, or a list of cases"
    if value == STANDARD:
        return 0, ()
    if isinstance(value, int) and not isinstance(value, bool):
        return whole_number(value, "cases", least=1), ()
    if not isinstance(value, list | tuple) or not value:
        raise UsageError(f"cases={value!r:.100} is not accepted: {accepted}")
    texts = [format_case(each) if isinstance(each, Case) else format_case(parse_case(str(each))) for each in value]
    return 0, tuple(dict.fromkeys(texts))


def _profile(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or value not in PROFILES:
        raise UsageError(f"{name}={value!r:.100} is not accepted: one of {', '.join(PROFILES)}")
    return value


def _checks(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, list | tuple) or not value:
        raise UsageError(f"checks={value!r:.100} is not accepted: a list of names, or None for all of them")
    from flashverify.checks.registry import CHECKS

    for name in value:
        if name not in CHECKS:
            raise UsageError(f"checks: {name!r:.100} is not accepted: one of {', '.join(CHECKS)}")
    return tuple(dict.fromkeys(value))
