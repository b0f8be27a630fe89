"""K and V in one buffer, as a latent cache has them: V is the first `dim_v` channels of K, bit for bit and in the same memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.case.require import require

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports

__all__ = ["KV", "check_shared", "sharable", "share", "shares", "value_view"]

KV = ("separate", "shared")
"""Values of `Storage.kv`, the plain one first."""


def shares(case: Case) -> bool:
    """Whether K and V of the case lie in one buffer."""
    return case.storage.kv == "shared"


def check_shared(case: Case) -> None:
    """Refuses a case whose K and V cannot lie in one buffer.

    Raises:
        UsageError: V has more channels than K, or the case has a backward: a gradient of the buffer would be the sum of two.
    """
    if not shares(case):
        return
    require(case.dim_v <= case.dim_qk, "dim_v", case.dim_v, f"<= dim_qk={case.dim_qk} with kv=shared")
    require(not case.grad.backward, "backward", "yes", "no with kv=shared, whose K and V have one gradient together")


def value_view(buffer: torch.Tensor, dim_v: int) -> torch.Tensor:
    """V in the buffer of K.

    Args:
        buffer: `[..., dim_qk]`.
        dim_v: channels of V.

    Returns:
        `[..., dim_v]`, a view.
    """
    return buffer[..., :dim_v]


def sharable(supports: Supports, case: Case) -> bool:
    """Whether the case may have one buffer for K and V where the subject takes that."""
    return "shared" in supports.kv and case.dim_v <= case.dim_qk


def share(case: Case) -> Case:
    """The case with K and V in one buffer: without a backward and without edits of V."""
    edits = tuple(edit for edit in case.values.edits if edit.tensor != "v")
    return dataclasses.replace(
        case,
        storage=dataclasses.replace(case.storage, kv="shared"),
        values=dataclasses.replace(case.values, edits=edits),
        grad=dataclasses.replace(case.grad, backward=False, do="dense", dlse=False),
    )
