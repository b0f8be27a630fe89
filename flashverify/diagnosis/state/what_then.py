"""What the calls compute that are wrong because of others: the wrong semantics that explains every one of them, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene

__all__ = ["computed_then"]

_NEEDED = 2
"""Calls that a semantics must explain, each clearly."""


def computed_then(scenes: Sequence[Scene], end: End) -> str:
    """The sentence of the first semantics that explains all wrong calls; empty where there is none, or where they are too few.

    Args:
        scenes: wrong calls with other values or sizes.
        end: after which no further semantics is tried.
    """
    if len(scenes) < _NEEDED:
        return ""
    for semantics in SEMANTICS:
        if end.over:
            return ""
        claim = Claim(semantics)
        if all(claim.answer(scene) is Answer.CLEAR for scene in scenes) and not claim.undetermined:
            return f"{semantics.sentence} ({claim.detail})" if claim.detail else semantics.sentence
    return ""
