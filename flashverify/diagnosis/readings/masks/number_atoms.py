"""Numbers of a case of which a mask may be made instead of the declared ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.bounds import BOUNDS, declared_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.bounds import Bound

    Number = Callable[[Scene], Tensor | None]
    """Of each row of a scene, int64, broadcasts to `[B, Hq, Sq]`; None where the case has not what it is about."""

__all__ = ["number_atoms"]


def number_atoms(bound: Bound) -> dict[str, Number]:
    """Numbers of a case by their symbols, those of the mask first."""
    found: dict[str, Number] = {"0": lambda s: torch.zeros(1, 1, 1, dtype=torch.int64)}
    found |= {
        each.symbol: partial(declared_of, bound=each) for each in BOUNDS if each.part not in (bound.part, "causal")
    }
    found |= {
        "max(keys - rows, 0)": lambda s: (s.at.keys - s.at.rows).clamp(min=0)[:, None],
        "keys - rows": lambda s: (s.at.keys - s.at.rows)[:, None],
        "the room for keys": lambda s: _one(s.case.seq_k),
        "the room for rows": lambda s: _one(s.case.seq_q),
        "i": lambda s: s.at.row[:, None],
        "the first key of the sequence in the buffer": lambda s: _starts(s, keys=True),
        "the first row of the sequence in the buffer": lambda s: _starts(s, keys=False),
    }
    if bound.part in ("keys", "rows", "prefix"):
        for words, which in _OTHERS.items():
            found[f"{bound.symbol} of {words}"] = partial(_elsewhere, bound=bound, which=which)
    for t in TILES:
        found[f"i % {t}"] = partial(lambda s, t: (s.at.row % t)[:, None], t=t)
        found[f"({t - 1} - i % {t})"] = partial(lambda s, t: (t - 1 - s.at.row % t)[:, None], t=t)
        found[f"i // {t} * {t}"] = partial(lambda s, t: (s.at.row // t * t)[:, None], t=t)
    found |= {
        "the page size": lambda s: _given(s.case.storage.page_size),
        "the rows of a block": lambda s: _size_of(s, "blocks", "rows"),
        "the keys of a block": lambda s: _size_of(s, "blocks", "keys"),
        "the rows of a list": lambda s: _size_of(s, "selection", "rows"),
        "the keys of a chosen block": lambda s: _size_of(s, "selection", "keys"),
        "group": lambda s: _one(s.group),
        "Hq": lambda s: _one(s.case.heads_q),
        "Hkv": lambda s: _one(s.case.heads_kv),
        "h": lambda s: torch.arange(s.case.heads_q).view(1, -1, 1),
        "h % group": lambda s: torch.arange(s.case.heads_q).view(1, -1, 1) % s.group,
        "h // group": lambda s: torch.arange(s.case.heads_q).view(1, -1, 1) // s.group,
        "b": lambda s: s.at.row_sequence[:, None],
        "D": lambda s: _one(s.case.dim_qk),
        "Dv": lambda s: _one(s.case.dim_v),
    }
    return found


def _one(number: int) -> Tensor:
    return torch.full((1, 1, 1), number)


def _given(number: int | None) -> Tensor | None:
    return None if not number else _one(number)


def _size_of(scene: Scene, part: str, side: str) -> Tensor | None:
    """Rows or keys of a block of the pattern, or of a selection."""
    return _given(getattr(getattr(scene.case.mask, part), side, None))


def _starts(scene: Scene, *, keys: bool) -> Tensor | None:
    """Where the row's sequence begins in the buffer of keys, or of rows."""
    packed = scene.case.mask.packed
    if packed is None:
        return None
    starts = packed.cu_k if keys else packed.cu_q
    return torch.tensor(starts)[scene.at.row_sequence][:, None]


_OTHERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the next sequence": lambda x, b: x[(b + 1) % len(x)],
    "the sequence before": lambda x, b: x[(b - 1) % len(x)],
    "the first sequence": lambda x, b: x[b * 0],
    "the last sequence": lambda x, b: x[b * 0 + len(x) - 1],
    "the longest of them": lambda x, b: x.max().expand(b.shape),
    "the shortest of them": lambda x, b: x.min().expand(b.shape),
    "all sequences together": lambda x, b: x.sum().expand(b.shape),
    "all sequences up to its own": lambda x, b: x.cumsum(0)[b],
}


def _elsewhere(scene: Scene, bound: Bound, which: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    """The number of other sequences; None of a case with one."""
    value = declared_of(scene, bound)
    sequence = scene.at.row_sequence
    count = int(sequence.max()) + 1 if sequence.numel() else 0
    if value is None or count < 2:
        return None
    table = torch.zeros(count, dtype=torch.int64)
    table[sequence.flatten()] = value[:, 0].expand(sequence.shape).flatten()
    return which(table, sequence)[:, None]
