"""Advice where a declaration names a field that it does not have."""

from __future__ import annotations

import difflib
import re
from dataclasses import fields

from flashverify.case.selections import Selections
from flashverify.case.supports import Supports
from flashverify.numerics.form import Form

__all__ = ["advice_on_field"]

_UNKNOWN = re.compile(r"^(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'$")


def advice_on_field(message: str) -> str:
    """What may have been meant, as the end of a message; empty where it is about nothing of this kind.

    Args:
        message: of a TypeError.
    """
    from flashverify.subjects.interface import Contract

    found = _UNKNOWN.match(message)
    kinds = {kind.__name__: kind for kind in (Supports, Selections, Contract, Form)}
    if found is None or found[1] not in kinds:
        return ""
    names = [each.name for each in fields(kinds[found[1]])]
    parts = {part.rstrip("s") for part in found[2].split("_")}
    alike = [name for name in names if parts & {part.rstrip("s") for part in name.split("_")}]
    near = list(dict.fromkeys([*difflib.get_close_matches(found[2], names), *alike]))
    return f". {found[1]} has {', '.join(near or names)}"
