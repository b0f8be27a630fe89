"""Hazards that a source line declares: known to its author, who says why they are none.

A comment on the line, such as `# flashverify: int32-offset is declared, heads are shorter than 2^31 elements`, names the kind
and gives a reason; without a reason it declares nothing.
"""

from __future__ import annotations

import linecache
import re

__all__ = ["is_declared"]

_COMMENT = re.compile(r"#\s*flashverify:\s*([a-z0-9-]+) is declared,\s*\S")


def is_declared(kind: str, where: str) -> bool:
    """Whether the source line `file:line` declares hazards of this kind."""
    file, _, line = where.rpartition(":")
    if not file or not line.isdigit():
        return False
    found = _COMMENT.search(linecache.getline(file, int(line)))
    return found is not None and found[1] == kind
