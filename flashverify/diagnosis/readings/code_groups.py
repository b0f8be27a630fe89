"""Scales and zero points that neighbouring keys share, as they are where a kernel counts their groups in another way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.code_reading import Reading

__all__ = ["of_groups"]


def of_groups(part: str, words: str = "") -> dict[str, Callable[[Reading, Reading], Tensor | None]]:
    """By their words, `[B, H, S, 1]` of what each key is read with; None where all share one.

    Args:
        part: `scale` or `zero`.
        words: what it is called; empty for its name.
    """
    return {f"{words or part} of {how}": partial(_of, at=at, part=part) for how, at in _numbers()}


def _of(mine: Reading, beside: Reading, at: Callable[[Reading, Tensor], Tensor], part: str) -> Tensor | None:  # noqa: ARG001
    if mine.groups.shape[2] < 2:
        return None
    return mine.of_groups(at(mine, torch.arange(mine.codes.shape[2])), part)


def _numbers() -> Iterator[tuple[str, Callable[[Reading, Tensor], Tensor]]]:
    """The number of the group that each key takes, in words."""
    yield "the next group", lambda x, key: key // x.per + 1
    yield "the group before", lambda x, key: key // x.per - 1
    yield "the first group", lambda _, key: key * 0
    yield "the last group", lambda x, key: torch.full_like(key, x.groups.shape[2] - 1)
    yield (
        "the last whole group for the keys behind it",
        lambda x, key: (key // x.per).clamp(max=max(len(key) // x.per - 1, 0)),
    )
    yield (
        "the last group that the sequence's keys fill for the keys behind it",
        lambda x, key: torch.minimum(key // x.per, (x.lengths.view(-1, 1) // x.per - 1).clamp(min=0)),
    )
    yield (
        "the group before the last one for the keys of the last one",
        lambda x, key: torch.where(key // x.per == (len(key) - 1) // x.per, key // x.per - 1, key // x.per),
    )
    yield "the nearest group, its number rounded", lambda x, key: (key + x.per // 2) // x.per
    yield "the group with the number of the key", lambda _, key: key
    yield "the group of the number rounded up", lambda x, key: -(-key // x.per)
    yield "the group whose number is the key's modulo their number", lambda x, key: key % x.groups.shape[2]
    yield "the group whose number is the key's within its group", lambda x, key: key % x.per
    yield "the groups in reverse order", lambda x, key: x.groups.shape[2] - 1 - key // x.per
    yield "groups of twice as many keys", lambda x, key: key // (2 * x.per)
    yield "groups of half as many keys", lambda x, key: key // max(x.per // 2, 1)
    yield "the other group of its two", lambda x, key: (key // x.per) ^ 1
    for n in (2, 4, 8):
        yield f"the first group of each {n}", partial(lambda x, key, n: key // x.per // n * n, n=n)
        yield f"group g % {n}", partial(lambda x, key, n: key // x.per % n, n=n)
        yield f"group min(g, {n - 1})", partial(lambda x, key, n: (key // x.per).clamp(max=n - 1), n=n)
    for size in TILES:
        yield f"groups of {size} keys", partial(lambda _, key, n: key // n, n=size)
        yield f"the first key of each tile of {size}", partial(lambda x, key, n: key // n * n // x.per, n=size)
        yield f"the last key of each tile of {size}", partial(lambda x, key, n: (key // n * n + n - 1) // x.per, n=size)
        yield (
            f"the same place in the first tile of {size}",
            partial(lambda x, key, n: key % n // x.per, n=size),
        )
