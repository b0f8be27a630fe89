"""Declared numbers of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.masks.part import Condition, LengthsPart, Role
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["KEY_LENGTHS"]


class _KeyLengths(LengthsPart):
    """Per sequence; keys from there on are padding."""

    name, word = "key_lengths", "klen"
    role: Role = "lengths"
    reason = "keys past the declared length"
    extent = True
    excludes = ("packed",)
    tensors = (
        TensorSpec(name="key_lengths", axes=("batch",), dtype="int32", values=lambda case: case.mask.key_lengths),
    )

    def full(self, seq_q: int, seq_k: int) -> int:
        """The keys of the buffer."""
        return seq_k

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Keys within their sequence."""
        return {"keys": lambda pairs: pairs.key < pairs.key_limit}

    def grow(self, piece: Any, rows: int, keys: int) -> int:
        """As much longer as the keys."""
        return int(piece) + keys


KEY_LENGTHS = _KeyLengths()
