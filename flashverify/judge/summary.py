"""How close an output comes to its bound, as numbers: the worst ratio, its place, the median and the 99th percentile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["Summary", "counted", "measured", "summary", "unravel"]

_QUANTILE_LIMIT = 1 << 20

Summary = tuple[float, tuple[int, ...], float, float]


def counted(amount: torch.Tensor, masks: Sequence[torch.Tensor]) -> tuple[float, list[int]]:
    """The value of a 0-d tensor, and how many elements of each bool mask are true."""
    import torch

    if amount.is_cuda:
        return float(amount), torch.stack([mask.count_nonzero() for mask in masks]).tolist()
    return float(amount), [int(np.count_nonzero(mask.numpy())) for mask in masks]


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
    return _on_host(flat, judged, ratio.shape)


def measured(
    amount: torch.Tensor, masks: Sequence[torch.Tensor], ratio: torch.Tensor, judged: torch.Tensor
) -> tuple[float, list[int], Summary]:
    """What `counted` says of `amount` and `masks`, and `summary` of `ratio` and `judged`; of a GPU in few operations and one transfer."""
    if ratio.is_cuda and 0 < ratio.numel() <= _QUANTILE_LIMIT:
        return _on_device(amount, masks, ratio, judged)
    return *counted(amount, masks), summary(ratio, judged)


def _on_device(
    amount: torch.Tensor, masks: Sequence[torch.Tensor], ratio: torch.Tensor, judged: torch.Tensor
) -> tuple[float, list[int], Summary]:
    """What is not judged becomes NaN, which is sorted behind everything else."""
    import torch

    flat, kept = ratio.reshape(-1), judged.expand_as(ratio).reshape(-1)
    counts = torch.stack([kept, *(mask.expand_as(ratio).reshape(-1) for mask in masks)]).sum(1)
    last, at = counts[:1] - 1, flat.argmax().view(1)
    places = torch.cat((last.div(2, rounding_mode="floor"), (99 * last).div(100, rounding_mode="floor"))).clamp_(min=0)
    ordered = flat.masked_fill(~kept, float("nan")).sort().values
    parts = (amount.view(1), ordered.gather(0, places), flat.gather(0, at), at.double(), counts.double())
    value, median, p99, worst, index, judging, *found = torch.cat(parts).tolist()
    place = unravel(int(index), ratio.shape)
    return value, [int(count) for count in found], (worst, place, median, p99) if judging else (0.0, (), 0.0, 0.0)


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
