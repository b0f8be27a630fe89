"""Which parts of the mask may stand together in the cases of a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.masks.mask import PARTS

if TYPE_CHECKING:
    from flashverify.case.supports import Supports

__all__ = ["banded_tree", "stand_together"]


def banded_tree(names: frozenset[str]) -> bool:
    """Whether the parts hold a tree with causal or a window."""
    return "tree" in names and not names.isdisjoint(("causal", "window"))


def stand_together(supports: Supports, *names: str) -> bool:
    """Whether the parts exclude none of each other, and the subject takes a tree with causal or a window where they hold both."""
    given = frozenset(names)
    apart = any(part.name in given and given.intersection(part.excludes) for part in PARTS)
    return not apart and (supports.banded_trees or not banded_tree(given))
