"""The record of what quantisation itself costs."""

from __future__ import annotations

import msgspec

__all__ = ["QuantisationError"]


class QuantisationError(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an output of attention over codes lies from that over the values that were quantised; no part of any verdict. Hex floats.

    Attributes:
        output: `o` or `lse`, natural.
        largest: difference of an element.
        rms: root of the mean square of the differences.
        size: that of the output over the values.
    """

    output: str
    largest: str = "0x0.0p+0"
    rms: str = "0x0.0p+0"
    size: str = "0x0.0p+0"

    def __str__(self) -> str:
        largest, rms, size = (float.fromhex(text) for text in (self.largest, self.rms, self.size))
        return (
            f"{self.output} over codes differs from {self.output} over the values by {largest:.3g} at most, "
            f"{rms:.3g} in the root mean square of {size:.3g}"
        )
