"""How close an output comes to its bound, as numbers: the worst ratio, its place, the median and the 99th percentile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["Summary", "counted", "numbers", "summary", "unravel"]

_QUANTILE_LIMIT = 1 << 20

Summary = tuple[float, tuple[int, ...], float, float]


def numbers(*scalars: torch.Tensor) -> list[float]:
    """The values of 0-d tensors of any dtype, in one transfer: of a GPU each one would wait for everything that is queued."""
    import torch

    found: list[float] = torch.stack([scalar.double() for scalar in scalars]).tolist()
    return found


def counted(amount: torch.Tensor, masks: Sequence[torch.Tensor]) -> tuple[float, list[int]]:
    """The value of a 0-d tensor, and how many elements of each bool mask are true; of a GPU in one transfer."""
    import torch

    if not amount.is_cuda:
        return float(amount), [int(np.count_nonzero(mask.numpy())) for mask in masks]
    value, *counts = numbers(amount, *map(torch.count_nonzero, masks))
    return value, [int(count) for count in counts]


def summary(ratio: torch.Tensor, judged: torch.Tensor | None) -> Summary:
    """Worst ratio, where it is, the median and the 99th percentile over the judged elements; of more than 2^20 of them over a sample.

    Args:
        ratio: 0 or more, 0 where nothing is judged; no axis is left out.
        judged: bool, broadcasts; None is all.
    """
    if ratio.numel() == 0:
        return 0.0, (), 0.0, 0.0
    flat = ratio.reshape(-1)
    judged = None if judged is None else judged.expand_as(ratio).reshape(-1)
    if judged is None or not ratio.is_cuda or flat.numel() > _QUANTILE_LIMIT:
        return _on_host(flat, judged, ratio.shape)
    return _on_device(flat, judged, ratio.shape)


def _on_device(flat: torch.Tensor, judged: torch.Tensor, shape: torch.Size) -> Summary:
    """In one transfer: what is not judged becomes NaN, which is sorted behind everything else."""
    last = judged.count_nonzero() - 1
    ordered = flat.masked_fill(~judged, float("nan")).sort().values
    places = (last.div(2, rounding_mode="floor"), (99 * last).div(100, rounding_mode="floor"))
    median, p99 = (ordered.gather(0, place.clamp(min=0).view(1))[0] for place in places)
    at, worst, behind, median_ratio, p99_ratio = numbers(flat.argmax(), flat.max(), last, median, p99)
    if behind < 0:
        return 0.0, (), 0.0, 0.0
    return worst, unravel(int(at), shape), median_ratio, p99_ratio


def _on_host(flat: torch.Tensor, judged: torch.Tensor | None, shape: torch.Size) -> Summary:
    if flat.is_cuda:
        at = int(flat.argmax())
        worst, kept = float(flat[at]), flat if judged is None else flat[judged]
        ratios = kept[:: _step(kept.numel())].cpu().numpy()
    else:  # numpy takes a sixth of the time
        every = flat.numpy()
        at = int(every.argmax())
        worst, ratios = float(every[at]), every if judged is None else every[judged.numpy()]
        ratios = ratios[:: _step(ratios.size)]
    if not ratios.size:
        return 0.0, (), 0.0, 0.0
    last = ratios.size - 1
    places = [last // 2, (99 * last) // 100]
    median, p99 = np.partition(ratios, places)[places].tolist()
    return worst, unravel(at, shape), median, p99


def _step(count: int) -> int:
    """Of so many ratios the quantiles are those of one in how many."""
    return max(1, -(-count // _QUANTILE_LIMIT))


def unravel(position: int, shape: torch.Size) -> tuple[int, ...]:
    """The index of an element of a contiguous tensor."""
    index = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return tuple(reversed(index))
