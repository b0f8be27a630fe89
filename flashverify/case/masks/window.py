"""The window part of the mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.masks.part import Condition, Drawn, MaskPart, Role, Source, down
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask

    Window = tuple[int | None, int | None]

__all__ = ["WINDOW"]


class _Window(MaskPart):
    """(left, right): row i, at its causal position p, sees keys p - left <= j <= p + right; None is unbounded."""

    name = word = "window"
    role: Role = "band"
    reason = "keys outside the window"

    def check(self, value: Any, mask: Mask) -> None:
        """Sides are open or not negative."""
        if any(side is not None and side < 0 for side in value):
            raise UsageError(f"window={value} is not accepted: sides are None or >= 0")

    def parse(self, text: str) -> Window:
        """Two sides between a comma, `*` for an open one."""
        left, right = text.split(",")
        return (None if left == "*" else int(left), None if right == "*" else int(right))

    def format(self, value: Any) -> str:
        """Two sides between a comma, `*` for an open one."""
        return ",".join("*" if side is None else str(side) for side in value)

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Each side that is not open."""
        left, right = case.mask.window or (None, None)
        found: dict[str, Condition] = {}
        if left is not None:
            found["left"] = lambda pairs: pairs.key >= pairs.position - left
        if right is not None:
            found["right"] = lambda pairs: pairs.key <= pairs.position + right
        return found

    def draw(self, source: Source, drawn: Drawn) -> Window:
        """Each side open, the row's own position, an edge of a tile, or as wide as everything; open where the subject has none."""
        full = max(drawn.seq_q, drawn.seq_k)

        def side() -> int | None:
            kind = source.choice(("open", "size", "size", "size", "open", 0, 1, full))
            return kind if isinstance(kind, int) else source.size(0, full) if kind == "size" else None

        sides = set(drawn.supports.window_sides)
        if "prefix_lengths" in drawn.supports.required_masks:
            sides.discard("right")
        return (side() if "left" in sides else None, side() if "right" in sides else None)

    def simpler(self, value: Any) -> Iterator[Window]:
        """Open on one side, then narrower."""
        left, right = value
        if left is not None and right is not None:
            yield (None, right)
            yield (left, None)
        for width in down(left or 0, 0):
            yield (width, right)
        for width in down(right or 0, 0):
            yield (left, width)


WINDOW = _Window()
