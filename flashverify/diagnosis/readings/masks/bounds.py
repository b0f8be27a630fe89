"""The numbers that bound a mask (sides of a window, lengths, prefixes, the diagonal): which of them would give a mask that was counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.predicate import visible_parts, widening
from flashverify.diagnosis.readings.masks.ends import visible_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["BOUNDS", "Bound", "Within", "bounded", "declared_of", "within"]

_FAR = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A part of the mask that shows a pair where a number of it is not larger than one that the part has.

    Attributes:
        part: name of the condition that it is.
        words: what the number is.
        of_pair: of a scene, the number of each pair, broadcasts to `[B, Hq, Sq, Sk]`.
        limit: of a scene, the declared number of each row, `[B, Hq or 1, Sq or 1]`; None where the case has no such part.
        symbol: stands for the declared number in formulas.
        ends_before: whether the number is the first one that is hidden, not the last one that shows.
    """

    part: str
    words: str
    of_pair: Callable[[Scene], Tensor]
    limit: Callable[[Scene], Tensor | None]
    symbol: str
    ends_before: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Within:
    """Of each row, `[B, Hq, Sq]` int64, what the number of a bound is at least, and what it is less than."""

    low: Tensor
    high: Tensor

    def holds(self, value: Tensor) -> bool:
        """Whether `value`, broadcast to `[B, Hq, Sq]`, is possible in every row."""
        return bool(((value >= self.low) & (value < self.high)).all())


def _key(scene: Scene) -> Tensor:
    return scene.at.key[:, None, None, :]


def _position(scene: Scene) -> Tensor:
    return (scene.at.row + scene.at.shift)[:, None, :, None]


def _side(number: int) -> Callable[[Scene], Tensor | None]:
    def limit(scene: Scene) -> Tensor | None:
        side = (scene.case.mask.window or (None, None))[number]
        return None if side is None else torch.full((1, 1, 1), side)

    return limit


def _prefix(scene: Scene) -> Tensor | None:
    lengths = scene.case.mask.prefix_lengths
    return None if not lengths else torch.tensor((*lengths, 0))[scene.at.row_sequence][:, None]


def _diagonal(scene: Scene) -> Tensor | None:
    return scene.at.shift[:, None] if scene.case.mask.causal else None


BOUNDS = (
    Bound("left", "the left side of the window", lambda s: _position(s) - _key(s), _side(0), "left"),
    Bound("right", "the right side of the window", lambda s: _key(s) - _position(s), _side(1), "right"),
    Bound("prefix", "the prefix", _key, _prefix, "prefix", ends_before=True),
    Bound("keys", "the key length", _key, lambda s: s.at.keys[:, None], "keys", ends_before=True),
    Bound(
        "rows",
        "the query length",
        lambda s: s.at.row[:, None, :, None].expand(-1, 1, -1, s.case.seq_k),
        lambda s: s.at.rows[:, None],
        "rows",
        ends_before=True,
    ),
    Bound(
        "causal",
        "the diagonal (key - row)",
        lambda s: _key(s) - s.at.row[:, None, :, None],
        _diagonal,
        "the declared one",
    ),
)


def declared_of(scene: Scene, bound: Bound) -> Tensor | None:
    """The declared number; None where the case has no such part."""
    return bound.limit(scene) if bound.part in ("prefix", *visible_parts_of(scene)) else None


def visible_parts_of(scene: Scene) -> dict[str, Tensor]:
    """The conditions of the mask, made once."""
    if "visible parts" not in scene.memo:
        scene.memo["visible parts"] = visible_parts(scene.case)
    found: dict[str, Tensor] = scene.memo["visible parts"]
    return found


def _rest(scene: Scene, bounds: tuple[Bound, ...]) -> tuple[Tensor, Tensor]:
    """Bool `[B, Hq, Sq, Sk]`: what the other parts show, and the pairs that show whatever the bounds say."""
    shape = visible_of(scene).shape
    names = {"causal" if each.part == "prefix" else each.part for each in bounds}
    rest = torch.ones(shape, dtype=torch.bool)
    for name, part in visible_parts_of(scene).items():
        if name not in names:
            rest = rest & part
    opened = torch.zeros((), dtype=torch.bool)
    if bounds[0].part == "prefix":
        opened = _key(scene) <= _position(scene)
    elif bounds[0].part == "causal":
        opened = widening(scene.case).get("causal", opened)
    return rest, opened.expand(shape)


def bounded(scene: Scene, limits: dict[Bound, Tensor]) -> Tensor:
    """The mask with other numbers in place of the declared ones of some bounds, `[B, Hq or 1, Sq or 1]` each."""
    rest, opened = _rest(scene, tuple(limits))
    inside = torch.ones((), dtype=torch.bool)
    for bound, limit in limits.items():
        last = limit - 1 if bound.ends_before else limit
        inside = inside & (bound.of_pair(scene) <= last.unsqueeze(-1))
    return rest & (opened | inside)


def within(scene: Scene, bounds: tuple[Bound, ...], effective: Tensor, read: Tensor) -> list[Within] | None:
    """What the numbers of the bounds are, if nothing but them is wrong with the mask; None where something else is.

    Args:
        scene: the case.
        bounds: one, or the two sides of a window.
        effective: bool `[B, Hq, Sq, Sk]`: the pairs that enter.
        read: bool, those of which that is known.
    """
    rest, opened = _rest(scene, bounds)
    free = rest & ~opened & read
    if bool((effective & ~rest & read).any()) or bool((~effective & rest & opened & read).any()):
        return None
    seen, hidden = effective & free, ~effective & free
    key = _key(scene).expand_as(seen)
    first = torch.where(seen, key, _FAR).amin(-1, keepdim=True)
    last = torch.where(seen, key, -_FAR).amax(-1, keepdim=True)
    some = seen.any(-1, keepdim=True)
    if len(bounds) > 1 and bool((hidden & (key > first) & (key < last)).any()):
        return None
    found = []
    for bound in bounds:
        value = bound.of_pair(scene).expand_as(seen)
        mine = hidden
        if len(bounds) > 1:  # of a row without keys either side may be the one that hides them
            mine = hidden & some & ((key < first) if bound.part == "left" else (key > last))
        low = torch.where(seen, value, -_FAR).amax(-1)
        high = torch.where(mine, value, _FAR).amin(-1)
        if bool((low >= high).any()):
            return None
        more = int(bound.ends_before)
        found.append(Within(low + more, high + more))
    return found
