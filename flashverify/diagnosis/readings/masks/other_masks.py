"""Masks that are those of another row, head, sequence or key, in words."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flashverify.case.changes import change
from flashverify.case.masks.predicate import visible
from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import tile_range, visible_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.weights.effect import Effect

    Place = Callable[[Tensor, int, Scene], Tensor]

__all__ = ["other_masks", "other_rows"]

_ROWS: tuple[tuple[str, Place], ...] = (
    ("the next row", lambda i, n, s: (i + 1).clamp(max=n - 1)),
    ("the row before", lambda i, n, s: (i - 1).clamp(min=0)),
    ("the first row", lambda i, n, s: i * 0),
    ("the last row", lambda i, n, s: i * 0 + n - 1),
    ("row i // group", lambda i, n, s: i // s.group),
    ("row i % group", lambda i, n, s: i % s.group),
    ("row i * group", lambda i, n, s: (i * s.group).clamp(max=n - 1)),
    ("row i // 2", lambda i, n, s: i // 2),
    ("the first row of its pair", lambda i, n, s: i // 2 * 2),
    ("the second row of its pair", lambda i, n, s: (i // 2 * 2 + 1).clamp(max=n - 1)),
    ("the row as far from the end", lambda i, n, s: n - 1 - i),
    ("the first row that shares its list", lambda i, n, s: i // _sharing(s) * _sharing(s)),
    (
        "the last row that shares its list",
        lambda i, n, s: (i // _sharing(s) * _sharing(s) + _sharing(s) - 1).clamp(max=n - 1),
    ),
)
_HEADS: tuple[tuple[str, Place], ...] = (
    ("the first query head", lambda h, n, s: h * 0),
    ("the next query head", lambda h, n, s: (h + 1) % n),
    ("the query head before", lambda h, n, s: (h - 1) % n),
    ("query head h // group", lambda h, n, s: h // s.group),
    ("the first query head of the group", lambda h, n, s: h // s.group * s.group),
    ("query head h % group", lambda h, n, s: h % s.group),
    ("query head h modulo the number of kv heads", lambda h, n, s: h % s.case.heads_kv),
    ("the first query head of its pair", lambda h, n, s: h // 2 * 2),
    ("the other query head of its pair", lambda h, n, s: torch.where((h ^ 1) < n, h ^ 1, h)),
    ("query head h // 2", lambda h, n, s: h // 2),
    ("the query head as far from the last one", lambda h, n, s: n - 1 - h),
    ("the last query head of the group", lambda h, n, s: h // s.group * s.group + s.group - 1),
)
_SEQUENCES: tuple[tuple[str, Place], ...] = (
    ("the first sequence", lambda b, n, s: b * 0),
    ("the next sequence", lambda b, n, s: (b + 1) % n),
    ("the sequence before", lambda b, n, s: (b - 1) % n),
    ("the last sequence", lambda b, n, s: b * 0 + n - 1),
    ("the sequence as far from the last one", lambda b, n, s: n - 1 - b),
)
_KEYS: tuple[tuple[str, Place], ...] = (
    ("the next key", lambda j, n, s: (j + 1).clamp(max=n - 1)),
    ("the key before", lambda j, n, s: (j - 1).clamp(min=0)),
)


def _sharing(scene: Scene) -> int:
    """Rows that share a list of a selection."""
    selection = scene.case.mask.selection
    return 1 if selection is None else selection.rows


def _tiles() -> Iterator[tuple[str, Place]]:
    for t in (4, 8, *TILES):
        yield f"the first row of the tile of {t} rows", partial(lambda i, n, s, t: i // t * t, t=t)
        yield (
            f"the last row of the tile of {t} rows",
            partial(lambda i, n, s, t: (i // t * t + t - 1).clamp(max=n - 1), t=t),
        )
        yield f"row i modulo {t}", partial(lambda i, n, s, t: i % t, t=t)


def other_masks() -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    """Masks in words, as `the mask of row i // group`, and as bool `[B, Hq, Sq, Sk]` of a scene; rows and keys count from the start of the buffers."""
    for axis, places in ((2, (*_ROWS, *_tiles())), (1, _HEADS), (0, _SEQUENCES), (3, _KEYS)):
        for words, place in places:
            yield f"the mask of {words}", _moved(axis, place)
    for words, how in (("top-left", "top-left"), ("bottom-right", "bottom-right")):
        yield f"the mask of the {words} diagonal", partial(lambda s, h: _aligned(s, h), h=how)
    for words, place in (*_ROWS, *_tiles()):
        for t in TILES:
            clipped = (
                f"the mask of {words}, within what its tile of {t} rows, the heads of a group side by side, may see"
            )
            yield clipped, _clipped(_moved(2, place), t)


def _moved(axis: int, place: Place) -> Callable[[Scene], Tensor]:
    def where(scene: Scene) -> Tensor:
        see = visible_of(scene)
        size = see.shape[axis]
        return see.index_select(axis, place(torch.arange(size), size, scene))

    return where


def other_rows() -> Iterator[tuple[str, Callable[[Effect, Tensor], Tensor]]]:
    """Other rows in words, and what `[B, Hq, Sq, Sk]` is when each row is that of the other."""
    for axis, places in ((2, (*_ROWS, *_tiles())), (1, _HEADS), (0, _SEQUENCES)):
        for words, place in places:
            yield (
                words,
                partial(
                    lambda e, x, a, p: x.index_select(a, p(torch.arange(x.shape[a]), x.shape[a], e.scene)),
                    a=axis,
                    p=place,
                ),
            )
    exchanged = "the row and head at the same place if heads and rows exchange their strides"
    yield exchanged, lambda e, x: x.transpose(1, 2).reshape(x.shape)
    yield (
        f"{exchanged}, the other way round",
        lambda e, x: x.reshape(x.shape[0], x.shape[2], x.shape[1], -1).transpose(1, 2),
    )
    both = "the sequence and head at the same place if sequences and heads exchange their strides"
    yield both, lambda e, x: x.transpose(0, 1).reshape(x.shape)


def _aligned(scene: Scene, how: str) -> Tensor:
    """The mask with its diagonal elsewhere."""
    mask = scene.case.mask
    changed: dict[str, Any] = {"causal": how} if mask.causal else {}
    if mask.window and not mask.causal:
        changed = {"window_alignment": how if how == "bottom-right" else None}
    case = change(scene.case, mask=replace(mask, **changed))
    see = None if case is None else visible(case)
    if see is None:
        return visible_of(scene)
    return see(slice(0, scene.case.seq_q), slice(0, scene.case.seq_k)).expand(visible_of(scene).shape)


def _clipped(where: Callable[[Scene], Tensor], size: int) -> Callable[[Scene], Tensor]:
    def clipped(scene: Scene) -> Tensor:
        return where(scene) & tile_range(scene, size)

    return clipped
