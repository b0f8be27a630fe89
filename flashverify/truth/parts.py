"""The problem of some rows, or of some keys, out of a larger one: what the outputs there depend on, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from flashverify.truth.inputs import Inputs

__all__ = ["of_keys", "of_rows"]


def of_rows(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    """The problem of some query rows alone: O, LSE, delta and dQ of a row depend on no other row.

    Args:
        inputs: the whole problem.
        rows: their numbers, ascending, int64 `[n]`. Memory is that of n times all keys.
    """
    import torch

    total, keys = inputs.q.shape[2], inputs.k.shape[2]
    if rows.numel() == total:
        return inputs.dense()
    whole, runs = slice(0, keys), _runs(rows)

    def pairs(x: Any) -> Any:
        if x is None or (not callable(x) and x.shape[-2] == 1):
            return x
        if not callable(x):
            return x.index_select(-2, rows)
        return torch.cat([_tile(x, run, whole) for run in runs], 2)

    def cut(x: torch.Tensor | None) -> torch.Tensor | None:
        return None if x is None else x.index_select(2, rows)

    return dataclasses.replace(
        inputs.without_learned(),
        q=inputs.q.index_select(2, rows),
        visible=pairs(inputs.visible),
        do=cut(inputs.do),
        dlse=cut(inputs.dlse),
        biases=tuple(pairs(bias) for bias in inputs.biases),
        keep=pairs(inputs.keep),
    )


def of_keys(inputs: Inputs, keys: torch.Tensor) -> Inputs:
    """The problem of some keys alone: given O and the LSE of every row, dK and dV of a key depend on no other key.

    Its own O, LSE and dQ are those of a row that has these keys only, and stand for nothing.

    Args:
        inputs: the whole problem.
        keys: their numbers, ascending, int64 `[n]`. Memory is that of n times some rows: pairs stay functions of rows.
    """
    import torch

    if keys.numel() == inputs.k.shape[2]:
        return inputs

    def pairs(x: Any) -> Any:
        if x is None or (not callable(x) and x.shape[-1] == 1):
            return x
        if not callable(x):
            return x.index_select(-1, keys)
        return lambda rows, part: torch.cat([_tile(x, rows, run) for run in _runs(keys[part])], -1)

    return dataclasses.replace(
        inputs.without_learned(),
        k=inputs.k.index_select(2, keys),
        v=inputs.v.index_select(2, keys),
        visible=pairs(inputs.visible),
        biases=tuple(pairs(bias) for bias in inputs.biases),
        keep=pairs(inputs.keep),
    )


def _tile(pairs: Any, rows: slice, keys: slice) -> torch.Tensor:
    """What a function of pairs gives for a tile, with every row and key of it."""
    found: torch.Tensor = pairs(rows, keys)
    return found.expand(*found.shape[:-2], rows.stop - rows.start, keys.stop - keys.start)


def _runs(positions: torch.Tensor) -> list[slice]:
    """Ascending positions as slices of neighbours."""
    found: list[slice] = []
    for place in positions.tolist():
        if found and found[-1].stop == place:
            found[-1] = slice(found[-1].start, place + 1)
        else:
            found.append(slice(place, place + 1))
    return found
