"""The memory of a GPU that processes share: what torch keeps of it for the next tensor is no process's alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.judge.verdict import CaseResult

__all__ = ["give_back", "was_short"]

_KEPT = 0.8
"""Of the GPU, what all its processes together may keep. The rest is for cases at work, and for contexts, kernels and their stacks, of which
torch knows nothing: a launch that finds no memory for them fails, and torch does not give its own back for it."""


def give_back(sharers: int | None) -> None:
    """Give the memory back that this process keeps without using it, where it keeps more than its part.

    Args:
        sharers: processes on the GPU; with None nothing is its part.
    """
    import torch

    stats = torch.cuda.memory_stats_as_nested_dict()  # `memory_reserved` sorts all of them first
    kept = stats.get("reserved_bytes", {}).get("all", {}).get("current", 0)
    if kept and (sharers is None or kept > _KEPT / sharers * torch.cuda.get_device_properties().total_memory):
        torch.cuda.empty_cache()


def was_short(result: CaseResult) -> bool:
    """Whether a case ended because the GPU had no memory left, which it may have for the same case later."""
    return any(v.check in ("exception", "harness") and "out of memory" in v.message for v in result.verdicts)
