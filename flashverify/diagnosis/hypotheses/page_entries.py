"""Keys that are looked up at other entries of their page table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.wiring import pages_read, table_width
from flashverify.diagnosis.hypothesis import Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Entry = Callable[[Scene, Tensor, int], Tensor]
    """Of the numbers of keys and the size of a page, the entry within the row of the sequence, `[Sk]` or `[B, Sk]`."""

__all__ = ["PAGE_ENTRIES"]

_FEW = (2, 4, 8, 16, 32, 64, 128, 256)


def _of(*entries: tuple[Entry, str]) -> Callable[[Scene, Tensor, int], Iterator[tuple[Tensor, str]]]:
    def read(scene: Scene, j: Tensor, own: int) -> Iterator[tuple[Tensor, str]]:
        width = table_width(scene)
        begin = torch.arange(scene.case.batch)[:, None] * width
        for entry, detail in entries:
            yield begin + entry(scene, j, own).clamp(0, max(width - 1, 0)), detail

    return read


def _last(scene: Scene, own: int) -> Tensor:
    """The last entry that keys of a sequence lie in, `[B, 1]`."""
    return (scene.at.key_limit[:, :1] - 1).clamp(min=0) // own


PAGE_ENTRIES = tuple(
    Semantics(name=name, sentence=sentence, build=pages_read(_of(*entries)), outputs=FORWARD, one_way=True)
    for name, sentence, entries in (
        (
            "page-of-the-first-of-several",
            "one look into the page table serves several keys: all of them are read from the page of the first one",
            tuple((partial(lambda _s, j, own, t: j // t * t // own, t=t), f"{t} keys") for t in _FEW),
        ),
        (
            "page-of-the-first-of-a-group",
            "entries of the page table are read in groups: all of a group are read as its first one",
            tuple((partial(lambda _s, j, own, t: j // own // t * t, t=t), f"{t} entries") for t in _FEW),
        ),
        (
            "page-of-the-last-entry-read",
            "of each sequence so many entries of the page table are read, and keys behind them from the last of these",
            tuple((partial(lambda _s, j, own, t: (j // own).clamp(max=t - 1), t=t), f"{t} entries") for t in _FEW),
        ),
        (
            "page-after",
            "the page of a key is looked up one entry too late",
            ((lambda s, j, own: torch.minimum(j // own + 1, _last(s, own)), ""), (lambda _s, j, own: j // own + 1, "")),
        ),
        (
            "pages-in-reverse",
            "the entries of a sequence in the page table are read in reverse",
            ((lambda s, j, own: _last(s, own) - j // own, ""),),
        ),
        (
            "page-last",
            "all keys are read from the last page of their sequence",
            ((lambda s, j, own: _last(s, own) + j * 0, ""),),
        ),
        (
            "every-second-entry",
            "entries of the page table are read as if each took two, or half of one",
            ((lambda _s, j, own: j // own * 2, "two"), (lambda _s, j, own: j // own // 2, "half of one")),
        ),
        (
            "page-of-the-position",
            "the page of a key is looked up as if the first rows stood before the keys",
            ((lambda s, j, own: (j + s.at.rows[:, :1]) // own, ""),),
        ),
    )
)
