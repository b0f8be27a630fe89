"""The releases of the gallery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.gallery.serving import SERVING
from flashverify.gallery.training import TRAINING

if TYPE_CHECKING:
    from flashverify.gallery.release import Release

__all__ = ["CATALOGUE", "release"]

CATALOGUE: tuple[Release, ...] = TRAINING + SERVING


def release(name: str) -> Release:
    """The release of that name."""
    return next(each for each in CATALOGUE if each.name == name)
