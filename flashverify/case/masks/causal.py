"""The causal part of the mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from flashverify.case.masks.part import Condition, Drawn, MaskPart, Role, Source
from flashverify.case.require import require

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask

__all__ = ["CAUSAL", "Causal"]

Causal = Literal["top-left", "bottom-right"]


class _Causal(MaskPart):
    """Row i sees key j only if j <= i (`top-left`), or j <= i + len_k - len_q (`bottom-right`)."""

    name = word = "causal"
    role: Role = "order"
    reason = "future keys"

    def check(self, value: Any, mask: Mask) -> None:
        """One of the two alignments."""
        accepted = ("top-left", "bottom-right")
        require(value in accepted, "causal", value, "None, 'top-left' or 'bottom-right'")

    def parse(self, text: str) -> str:
        """The alignment."""
        return text

    def format(self, value: Any) -> str:
        """The alignment."""
        return str(value)

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """No key after the row's position."""
        return {"causal": lambda pairs: pairs.key <= pairs.position}

    def draw(self, source: Source, drawn: Drawn) -> str:
        """An alignment that the subject has."""
        alignment: str = source.choice([a for a in ("top-left", "bottom-right") if a in drawn.supports.causal])
        return alignment


CAUSAL = _Causal()
