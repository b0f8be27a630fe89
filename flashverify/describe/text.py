"""A description as lines for a reader."""

from __future__ import annotations

import shlex
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.describe.record import Description

__all__ = ["description_text"]

_WIDTH = 118
_REASONS = 5


def description_text(found: Description) -> str:
    """What is declared, what that leaves untested, and the drawn cases with the command that judges each."""
    return "\n".join(_lines(found))


def _lines(found: Description) -> Iterator[str]:
    yield f"{found.name} ({found.spec}), drawn for {found.device}"
    yield "\ndeclared; every other field has its default, which --json lists"
    for kind, fields in (("Supports", found.supports), ("Contract", found.contract), ("Form", found.form)):
        yield f"  {kind}: {'' if fields else 'nothing'}".rstrip()
        yield from (line for name, value in fields.items() for line in _wrapped(f"  {name}={value}"))
    yield "\nleft untested"
    for topic, group in groupby(found.untested, key=lambda each: each.topic):
        yield from _wrapped(f"{topic}: {'; '.join(each.what for each in group)}")
    yield f"\n`flashverify run` judges {found.fixed} fixed cases, `flashverify fuzz` begins with {found.corpus} of its corpus"
    if found.reasons:
        yield f"`also` refuses {found.refused:.0%} of the draws inside everything else"
        yield from (f"  {reason}" for reason in found.reasons[:_REASONS])
    yield f"\n{len(found.drawn)} drawn cases" if found.drawn else "\nno case can be drawn"
    for case in found.drawn:
        yield f"  flashverify replay {shlex.quote(case)} --subject {shlex.quote(found.spec)} --device {found.device}"


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="      ", break_long_words=False)
