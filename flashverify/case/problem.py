"""A case as tensors: what a subject is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["Problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The tensors of a case.

    Args:
        case: the case they come from.
        q: `[B, Hq, Sq, D]`, a view whose strides follow `case.storage`; last axis contiguous.
        k: `[B, Hkv, Sk, D]`.
        v: `[B, Hkv, Sk, Dv]`.
        do: `[B, Hq, Sq, Dv]`, the incoming gradient of O; None without a backward.
        dlse: `[B, Hq, Sq]` fp32, the incoming gradient of the natural LSE, or None.
        key_lengths: `[B]` int32, or None.
    """

    case: Case
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor | None
    dlse: torch.Tensor | None
    key_lengths: torch.Tensor | None

    @property
    def scale(self) -> float:
        """The scale of the logits, natural units."""
        return self.case.softmax_scale

    @property
    def causal(self) -> str | None:
        """None, `top-left` or `bottom-right`."""
        return self.case.mask.causal

    @property
    def tree(self) -> tuple[int, ...] | None:
        """Parents of the query nodes, or None."""
        return self.case.mask.tree
