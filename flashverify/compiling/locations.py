"""Where in the source an operation of Triton's intermediate code stands."""

from __future__ import annotations

import re

__all__ = ["LOCATION", "locations_of", "where"]

LOCATION = re.compile(r"loc\((#loc\d*|\"[^\"]*\":\d+:\d+)[^)]*\)\s*$")
"""The location at the end of a line."""


def locations_of(code: str) -> dict[str, str]:
    """The definitions of the names of locations."""
    return dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", code, re.MULTILINE))


def where(line: str, locations: dict[str, str]) -> str:
    """`file:line` of the innermost place in the source."""
    match = LOCATION.search(line)
    text = match[1] if match else ""
    for _ in range(20):
        place = re.match(r"\"([^\"]+)\":(\d+):\d+", text)
        if place:
            return f"{place[1]}:{place[2]}"
        following = re.search(r"#loc\d*", text)
        if following is None:
            break
        text = locations.get(following[0], "")
    return "unknown"
