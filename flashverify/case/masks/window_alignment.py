"""Where a window lies that comes without causal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.masks.part import Condition, Drawn, MaskPart, Role, Source
from flashverify.case.require import require

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask

__all__ = ["WINDOW_ALIGNMENT"]


class _WindowAlignment(MaskPart):
    """Row i stands at position i + len_k - len_q for the window, as under a causal part of that alignment; None is position i."""

    name, word = "window_alignment", "window_align"
    role: Role = "alignment"
    needs = ("window",)

    def check(self, value: Any, mask: Mask) -> None:
        """The one alignment that differs from the default, and from none that causal names."""
        require(value == "bottom-right", self.name, value, "None (top-left) or 'bottom-right'")
        require(
            mask.causal in (None, value), self.name, value, f"that of causal={mask.causal!r}, which the window follows"
        )

    def parse(self, text: str) -> str:
        """The alignment."""
        return text

    def format(self, value: Any) -> str:
        """The alignment."""
        return str(value)

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """None of its own: it moves the positions."""
        return {}

    def draw(self, source: Source, drawn: Drawn) -> str:
        """The alignment; the draw of the parts decides whether there is one."""
        return "bottom-right"


WINDOW_ALIGNMENT = _WindowAlignment()
