"""Declared numbers of query rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.masks.part import Condition, LengthsPart, Role
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["QUERY_LENGTHS"]


class _QueryLengths(LengthsPart):
    """Per sequence; rows from there on are padding: O = 0, LSE = -inf, no gradient."""

    name, word = "query_lengths", "qlen"
    role: Role = "lengths"
    reason = "keys in rows past the declared length"
    extent = True
    excludes = ("packed",)
    tensors = (
        TensorSpec(name="query_lengths", axes=("batch",), dtype="int32", values=lambda case: case.mask.query_lengths),
    )

    def full(self, seq_q: int, seq_k: int) -> int:
        """The rows of the buffer."""
        return seq_q

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Rows within their sequence."""
        return {"rows": lambda pairs: pairs.row < pairs.rows}

    def grow(self, piece: Any, rows: int, keys: int) -> int:
        """As much longer as the rows."""
        return int(piece) + rows


QUERY_LENGTHS = _QueryLengths()
