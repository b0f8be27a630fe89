"""Cases that leave a declaration by exactly one property."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.campaign.worker.search import fresh
from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import LOGIT_MODIFIERS
from flashverify.case.refusals import rules
from flashverify.case.sections import LAYOUTS
from flashverify.case.space.profiles import profile_of
from flashverify.case.space.strategies import cases
from flashverify.case.text import format_case
from flashverify.errors import UsageError
from flashverify.formats import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports

__all__ = ["only_property", "outside_cases", "widened"]

_DRAWS = 24
"""Cases that are drawn for a property at most, of which few lie outside."""

_PLAIN = {"non_finite": False, "huge_modifiers": False, "wild_slopes": False}
"""What is left out of every draw, so that the property is what is odd."""

_WIDEST: dict[str, Any] = {
    "dtypes": DTYPES,
    "causal": ("top-left", "bottom-right"),
    "rectangular_causal": True,
    "combine_masks": True,
    "required_masks": (),
    "always_paged": False,
    "window_sides": ("left", "right"),
    "window_alignments": ("top-left", "bottom-right"),
    "banded_trees": True,
    "entry_trees": True,
    "block_multiple": 16,
    "dropout": True,
    "seq_q": None,
    "seq_k": None,
    "max_seq_q": None,
    "seq_multiple": 1,
    "square": False,
    "heads_q": None,
    "group_sizes": None,
    "gqa": True,
    "dim_multiple": 8,
    "dim_max": 256,
    "equal_dims": False,
    "empty": True,
    "scales": ("positive", "zero", "negative"),
    "layouts": LAYOUTS,
    "gaps": True,
    "unaligned": True,
    "expand": True,
    "strided": True,
    "dlse": True,
    "transposed": True,
}
"""The widest value of each property that a declaration may narrow."""


def widened(supports: Supports) -> Iterator[Supports]:
    """The declaration with one property at its widest, for each that is narrower; and with one more part of the mask or modifier."""
    changes: list[dict[str, Any]] = [
        {name: value} for name, value in _WIDEST.items() if getattr(supports, name) != value
    ]
    parts = [part.name for part in PARTS if part.role != "alignment" and part.name not in supports.masks]
    changes += [{"masks": (*supports.masks, name)} for name in parts]
    names = [modifier.name for modifier in LOGIT_MODIFIERS if modifier.name not in supports.logits]
    changes += [{"logits": (*supports.logits, name)} for name in names]
    for change in changes:
        try:
            yield dataclasses.replace(supports, **(_PLAIN | change))
        except UsageError:  # it contradicts another declaration, which then is the property
            continue


def only_property(supports: Supports, case: Case) -> str | None:
    """The only property of the declaration that refuses the case, in words; None where none or several do, or `also` refuses it too."""
    found: dict[str, str] = {}
    for refused, reason in rules(supports, case):
        if refused:  # rows and keys of a square problem break the same declaration
            found.setdefault(reason.partition(", ")[2] or reason, reason)
    reasons = list(found.values())
    if len(reasons) != 1 or supports.refused_by_also(case) is not None:
        return None
    return reasons[0]


def outside_cases(supports: Supports, *, device: str, seed: int, each: int) -> Iterator[tuple[Case, str]]:
    """Cases with the property by which they leave the declaration, one of every property first, then the next.

    Args:
        supports: of the subject.
        device: `cpu` or `cuda`, for the sizes.
        seed: of the draws.
        each: cases for every property, at most.
    """
    profile = profile_of(device)
    found: list[list[tuple[Case, str]]] = []
    for number, wide in enumerate(widened(supports)):
        kept: dict[str, tuple[Case, str]] = {}
        for case in fresh(cases(wide, profile=dataclasses.replace(profile, kinds=None)), _DRAWS, seed + number):
            if (reason := only_property(supports, case)) is not None:
                kept.setdefault(format_case(case), (case, reason))
            if len(kept) == each:
                break
        found.append(list(kept.values()))
    for turn in range(each):
        for of_property in found:
            if turn < len(of_property):
                yield of_property[turn]
