"""What one comparison of a pass with the oracle leaves for the checks after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashverify.truth import Clean, Truth

__all__ = ["Known"]


@dataclass(frozen=True, slots=True)
class Known:
    """The truth of a pass, with what it has computed so far.

    Attributes:
        truth: of the problem.
        tidy: its finite values, and what non-finite inputs may have reached.
        outputs: what the subject returned, by name, on the device of the truth.
    """

    truth: Truth
    tidy: Clean
    outputs: dict[str, torch.Tensor]
