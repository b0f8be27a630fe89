"""Softcap: S becomes softcap * tanh(S / softcap), before anything is added."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flashverify.case.codec import float_text, parse_float
from flashverify.case.modifiers.modifier import Modifier
from flashverify.case.require import require

if TYPE_CHECKING:
    from flashverify.case.masks.part import Source
    from flashverify.case.supports import Supports

__all__ = ["SOFTCAP"]


class _Softcap(Modifier):
    name = "softcap"

    def check(self, value: Any) -> None:
        """A positive number."""
        require(value is None or 0 < value < math.inf, "softcap", value, "None or a positive number")

    def parse(self, text: str) -> float:
        """A number."""
        return parse_float(text)

    def format(self, value: Any) -> str:
        """A number."""
        return float_text(value)

    def draw(self, source: Source, supports: Supports) -> Any:
        """A cap that is usual, one that flattens everything, and any from 2^-6 to 2^13, whole numbers and fractions."""
        cap = source.choice((30.0, 1.0, 50.0, 0.0, 0.0, 0.0))
        return cap or source.integer(33, 64) * 2.0 ** source.integer(-11, 7)


SOFTCAP = _Softcap()
