"""Delta and dLSE that are sums or means over rows, heads or sequences, that take in some keys only, or the weight of the sink."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.backward.variants import Option, RowTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

__all__ = ["averaged_rows", "tiled_deltas"]

_SIZES = (16, 32, 48, 64, 128)


def averaged_rows(scene: Scene) -> Iterator[Option]:
    """Variants of delta and dLSE, `[B, Hq, Sq]` each."""
    names = ("delta", "dLSE") if scene.inputs.dlse is not None else ("delta",)
    for name, (over, total), mean in product(names, _AXES, (True, False)):
        words = f"{name} is the {'mean' if mean else 'sum'} over the {over}"
        yield Option(words, partial(_averaged, name, total, mean))
    if scene.inputs.sink is not None:
        for name in names:
            for words, change in _BY_SINK:
                yield Option(f"{name} is {words}", partial(_by_sink, name, change))


def tiled_deltas(scene: Scene) -> Iterator[Option]:
    """Variants of delta that sum P dP over a part of the keys of a row, `[B, Hq, Sq, Sk]`."""
    for size in _SIZES:
        if size < scene.case.seq_k:
            for up_to in (False, True):
                which = (
                    f"the keys up to the end of the pair's tile of {size}"
                    if up_to
                    else f"the pair's tile of {size} keys"
                )
                for dlse in (True, False) if scene.inputs.dlse is not None else (True,):
                    words = f"delta sums P dP over {which} alone{'' if dlse else ', and dLSE is missing'}"
                    yield Option(words, partial(_of_tile, size, up_to, dlse))


def _averaged(
    name: str, total: Callable[[Scene, Tensor], tuple[Tensor, Tensor]], mean: bool, scene: Scene, s: Steps
) -> RowTerms | None:
    if name == "dLSE" and scene.inputs.dlse is None:
        return None
    sums, count = total(scene, s.delta if name == "delta" else s.dlse)
    found = sums / count.clamp(min=1) if mean else sums
    found = found * s.some
    return RowTerms(found, s.dlse) if name == "delta" else RowTerms(s.delta, found)


def _rows_of_sequence(scene: Scene, x: Tensor) -> tuple[Tensor, Tensor]:
    at = scene.at
    number = at.row_sequence.reshape(-1).long()
    number = number - (number.min() if number.numel() else 0)
    counts = (at.row < at.rows)[:, None, :]
    flat = (x * counts).transpose(0, 1).flatten(1)
    sums = flat.new_zeros(flat.shape[0], int(number.max()) + 1 if number.numel() else 1).index_add_(1, number, flat)
    return sums[:, number].view(x.shape[1], x.shape[0], x.shape[2]).transpose(0, 1), at.rows[:, None, :].double()


def _heads(scene: Scene, x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(1, keepdim=True).expand(x.shape), torch.tensor(float(scene.case.heads_q))


def _group(scene: Scene, x: Tensor) -> tuple[Tensor, Tensor]:
    split = x.reshape(x.shape[0], -1, scene.group, x.shape[2])
    return split.sum(2, keepdim=True).expand(split.shape).flatten(1, 2), torch.tensor(float(scene.group))


def _sequences(scene: Scene, x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(0, keepdim=True).expand(x.shape), torch.tensor(float(scene.case.batch))


_AXES = (
    ("rows of the sequence", _rows_of_sequence),
    ("query heads of the group", _group),
    ("query heads", _heads),
    ("sequences", _sequences),
)
_BY_SINK: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("multiplied by the weight of all keys, 1 - that of the sink", lambda w: 1 - w),
    ("divided by the weight of all keys, 1 - that of the sink", lambda w: (1 / (1 - w)).nan_to_num(0.0, 0.0, 0.0)),
    ("multiplied by the weight of the sink", lambda w: w),
)


def _by_sink(name: str, change: Callable[[Tensor], Tensor], _scene: Scene, s: Steps) -> RowTerms | None:
    if s.sink_weight is None:
        return None
    by = change(s.sink_weight)
    return RowTerms(s.delta * by, s.dlse) if name == "delta" else RowTerms(s.delta, s.dlse * by)


def _of_tile(size: int, up_to: bool, dlse: bool, scene: Scene, s: Steps) -> RowTerms | None:
    key, of = scene.at.key, scene.at.key_sequence
    count = int(key.max()) // size + 1 if key.numel() else 1
    first = of.amin(1, keepdim=True) if of.shape[1] else 0
    number = (key // size + (of - first) * count)[:, None, None, :].expand(s.p.shape)
    total = s.p.new_zeros(*s.p.shape[:3], int(number.max()) + 1).scatter_add_(3, number, s.p * s.dp)
    found = (total.cumsum(3) if up_to else total).gather(3, number)
    wide = s.dlse.unsqueeze(-1).expand(s.p.shape)
    return RowTerms(found, wide if dlse else wide * 0.0)
