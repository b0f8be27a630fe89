"""The case behind a number of a stored comparison."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["explained", "numbers"]


def numbers(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """By name the words for a number and the text of its case: `worst:o:fp16`, `before:o:fp16`, `ulp:o:fp16`, `failing:1`, `moved:1`."""
    return dict(_numbers(document))


def _numbers(document: dict[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    for number, found in enumerate(document["newly_failing"], 1):
        yield f"failing:{number}", ("; ".join(found["failures"]), found["case"])
    for row in (document.get("elements") or {}).get("rows", ()):
        place = f"{row['output']}:{row['dtype']}"
        for name, side in (("worst", "after"), ("before", "before")):
            if case := row[side]["worst_case"]:
                yield f"{name}:{place}", (f"the worst ratio {side} the change, {row[side]['worst']}", case)
        if case := row["largest_ulp_case"]:
            size = "not finite on one side" if row["largest_ulp"] is None else f"{row['largest_ulp']:,.0f} ulp"
            yield f"ulp:{place}", (f"the largest change of an element, {size}", case)
    for number, found in enumerate(document["movers"], 1):
        words = f"{found['output']} {found['mode']}: worst ratio {found['before']} before, {found['after']} after"
        yield f"moved:{number}", (words, found["case"])


def explained(document: dict[str, Any], name: str) -> str:
    """What a number is, its case, and the commands that judge it on either side.

    Raises:
        UsageError: there is no such number; the message lists those that there are.
    """
    known = numbers(document)
    if name not in known:
        raise UsageError(
            f"--explain={name!r} is not accepted: one of {', '.join(known) or 'none: no number has a case'}"
        )
    words, case = known[name]
    lines = [f"{name}: {words}", f"  {case}"]
    for side, spec in zip(("before", "after"), document.get("specs", ()), strict=False):
        lines.append(f"  {side}: flashverify replay {shlex.quote(case)} --subject {shlex.quote(spec)}")
    return "\n".join(lines)
