"""Which key each query row sees: the specification that every subject is held to. Every part says its own conditions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.mask import PARTS
from flashverify.case.masks.pairs import pairs_at, tile_of_pairs
from flashverify.case.masks.positions import positions, shared_positions

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.masks.pairs import Pairs
    from flashverify.case.masks.part import Condition, MaskPart

__all__ = ["Visible", "hidden_by", "visible", "visible_parts", "widening"]

Visible = Callable[[slice, slice], torch.Tensor]
"""Maps (rows, keys) to a bool tensor `[B, 1 or Hq, rows, keys]`: true where the row sees the key."""


def visible(case: Case, device: torch.device | str = "cpu") -> Visible | None:
    """The mask of `case` as a function of (rows, keys), or None where every row sees every key."""
    if not case.mask.parts():
        return None
    at, conditions = shared_positions(case, device), _conditions(case, device)
    return lambda rows, keys: reduce(
        torch.logical_and, _evaluated(conditions, tile_of_pairs(case, at, rows, keys)).values()
    )


def visible_parts(case: Case, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Every condition of the mask of `case`, bool, each broadcasts to `[B, Hq, Sq, Sk]`; their AND is the mask.

    `sequence`, `rows` (declared query lengths) and `keys` (declared key lengths) are always there; `causal`, `left`, `right`,
    `tree`, `bitmap` and `blocks` where the case has them.
    """
    everything = slice(0, case.seq_q), slice(0, case.seq_k)
    return _evaluated(_conditions(case, device), tile_of_pairs(case, positions(case, device), *everything))


def widening(case: Case, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Per name in `visible_parts` that another part widens, bool, what it adds."""
    conditions = [each for each in _conditions(case, device) if each[0].opens]
    everything = slice(0, case.seq_q), slice(0, case.seq_k)
    return _evaluated(conditions, tile_of_pairs(case, positions(case, device), *everything))


def hidden_by(case: Case, places: Tensor) -> dict[str, Tensor]:
    """Per part of the mask that hides pairs, in its words, bool `[n]`: whether it hides each.

    Parts that say which rows and keys there are come first.

    Args:
        case: the problem.
        places: int64 `[n, 4]`: batch, query head, row, key.
    """
    conditions = _conditions(case, places.device)
    seen = _evaluated(conditions, pairs_at(case, positions(case, places.device), places))
    found = {}
    for part, _ in sorted(case.mask.given(), key=lambda given: not given[0].extent):
        if part.reason:
            found[part.reason] = torch.zeros(len(places), dtype=torch.bool, device=places.device)
            for name in (name for owner, name, _ in conditions if owner is part):
                found[part.reason] |= ~seen[name]
    return found


def _conditions(case: Case, device: torch.device | str) -> list[tuple[MaskPart, str, Condition]]:
    """Parts with the names of their conditions; those that open another one's stand under its name, behind it."""
    present = case.mask.parts()
    found = [
        (part, part.opens or name, condition)
        for part in PARTS
        if part.extent or part.name in present
        for name, condition in part.conditions(case, device).items()
    ]
    return sorted(found, key=lambda each: bool(each[0].opens))


def _evaluated(conditions: list[tuple[MaskPart, str, Condition]], pairs: Pairs) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for _, name, condition in conditions:
        holds = condition(pairs)
        found[name] = found[name] | holds if name in found else holds
    return found
