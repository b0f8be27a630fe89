"""Sets of visible pairs in words: the first and last keys of a row, its tiles, keys at a distance."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.predicate import widening
from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import (
    FAR,
    common_to_tile,
    ends_of,
    key_of,
    over_tile,
    sizes_of,
    visible_of,
)
from flashverify.diagnosis.readings.masks.extent import Extent
from flashverify.diagnosis.readings.masks.lanes import lanes
from flashverify.diagnosis.readings.masks.pattern_blocks import seen_blocks
from flashverify.diagnosis.readings.masks.pieces import behind_empty, pieces
from flashverify.diagnosis.readings.masks.ring_pieces import ring_pieces
from flashverify.diagnosis.readings.masks.whole_tiles import tails, whole_tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["EVERY", "tile_extents", "tiled", "visible_extents"]


EVERY = "every key"
"""Of a row, those that it sees."""


def visible_extents(scene: Scene, wrong: Tensor) -> Iterator[Extent]:
    """Sets of visible pairs, the simpler ones first.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`, visible pairs; distances and numbers are theirs.
    """
    yield Extent(EVERY, visible_of)
    (first, last), key = ends_of(scene), key_of(scene)
    full = torch.broadcast_to

    def seen(words: str, where: Callable[[Scene], Tensor]) -> Extent:
        return Extent(words, lambda s: visible_of(s) & where(s))

    ahead = int(full(last - key, wrong.shape)[wrong].max()) + 1
    back = int(full(key - first, wrong.shape)[wrong].max()) + 1
    yield seen(_count("last", ahead), lambda s: key_of(s) > ends_of(s)[1] - ahead)
    yield seen(_count("first", back), lambda s: key_of(s) < ends_of(s)[0] + back)
    yield from _of_window(scene, wrong, seen)
    yield from seen_blocks(scene, wrong, seen)
    yield from _opened(scene, wrong, seen)
    for t in sizes_of(scene):
        yield from tiled(t, seen)
    yield from whole_tiles(scene, seen)
    for t in (*TILES, FAR):
        rows = "the sequence" if t == FAR else f"the tile of {t} rows"
        yield seen(
            f"keys before the first one that every row of {rows} sees",
            partial(lambda s, t: key_of(s) < common_to_tile(s, t)[0], t=t),
        )
        yield seen(
            f"keys behind the last one that every row of {rows} sees",
            partial(lambda s, t: key_of(s) > common_to_tile(s, t)[1], t=t),
        )
        if t != FAR and scene.group > 1:
            rows = f"the tile of {t} rows, the heads of a group side by side,"
            yield seen(
                f"keys before the first one that every row of {rows} sees",
                partial(lambda s, t: key_of(s) < over_tile(s, t, common=True, packed=True)[0], t=t),
            )
            yield seen(
                f"keys behind the last one that every row of {rows} sees",
                partial(lambda s, t: key_of(s) > over_tile(s, t, common=True, packed=True)[1], t=t),
            )
    for t in (*TILES, FAR):
        for size in sizes_of(scene):
            yield from _walks(t, size, seen)
    at = scene.at

    def one_of(words: str, where: Callable[[Scene], Tensor]) -> Extent:
        return replace(seen(words, where), numbered=True)

    offset = full(key_of(scene) - (at.row + at.shift)[:, None, :, None], wrong.shape)[wrong]
    low, high = int(offset.min()), int(offset.max())

    def off(s: Scene) -> Tensor:
        return key_of(s) - (s.at.row + s.at.shift)[:, None, :, None]

    if low == high:
        yield one_of("the key at the row's own position" + (f" {low:+d}" if low else ""), lambda s: off(s) == low)
    else:
        yield one_of(
            f"keys whose distance from the row's position is {low} to {high}",
            lambda s: (off(s) >= low) & (off(s) <= high),
        )
        yield one_of(f"keys whose distance from the row's position is at most {high}", lambda s: off(s) <= high)
        yield one_of(f"keys whose distance from the row's position is at least {low}", lambda s: off(s) >= low)
    number = full(key, wrong.shape)[wrong]
    begin, end = int(number.min()), int(number.max())
    if begin == end:
        yield one_of(f"key {begin}", lambda s: key_of(s) == begin)
    yield from pieces(scene, begin, end, one_of)
    yield from behind_empty(scene, seen)
    yield from ring_pieces(scene, seen)
    yield from _of_context(scene, seen)
    yield from lanes(scene, wrong, seen)
    yield from tails(scene, wrong, seen)
    yield one_of(f"keys from {begin} on", lambda s: key_of(s) >= begin)
    yield one_of(f"keys up to {end}", lambda s: key_of(s) <= end)
    yield one_of(f"keys {begin} to {end}", lambda s: (key_of(s) >= begin) & (key_of(s) <= end))


def _of_window(
    scene: Scene, wrong: Tensor, seen: Callable[[str, Callable[[Scene], Tensor]], Extent]
) -> Iterator[Extent]:
    """Keys near the edges of a row's window, wherever the keys of its sequence begin and end."""
    for side, (name, sign) in enumerate((("left", -1), ("right", 1))):
        far = _behind_edge(scene, side, sign)
        if far is None or not bool(wrong.any()):
            continue
        n = int(torch.broadcast_to(far, wrong.shape)[wrong].max()) + 1
        yield seen(
            f"{_count('first' if side == 0 else 'last', n)} of the row's window, counted from its {name} edge",
            partial(_within_edge, side=side, sign=sign, n=n),
        )


def _opened(scene: Scene, wrong: Tensor, seen: Callable[[str, Callable[[Scene], Tensor]], Extent]) -> Iterator[Extent]:
    """Keys that a row sees only because a prefix opens the mask for them."""
    if not widening(scene.case) or not bool(wrong.any()):
        return
    number = torch.broadcast_to(key_of(scene), wrong.shape)[wrong]
    begin, end = int(number.min()), int(number.max())
    yield seen("keys that the prefix alone shows", _by_prefix)
    yield seen(f"keys from {begin} on that the prefix alone shows", lambda s: _by_prefix(s) & (key_of(s) >= begin))
    yield seen(f"keys up to {end} that the prefix alone shows", lambda s: _by_prefix(s) & (key_of(s) <= end))


def _by_prefix(scene: Scene) -> Tensor:
    wider = widening(scene.case).get("causal")
    behind = key_of(scene) > (scene.at.row + scene.at.shift)[:, None, :, None]
    return torch.zeros((), dtype=torch.bool) if wider is None else wider & behind


def _behind_edge(scene: Scene, side: int, sign: int) -> Tensor | None:
    """How far each key lies inside an edge of the row's window, `[B, 1, Sq, Sk]`; None where the window has not that side."""
    size = (scene.case.mask.window or (None, None))[side]
    edge = None if size is None else (scene.at.row + scene.at.shift + sign * size)[:, None, :, None]
    return None if edge is None else sign * (edge - key_of(scene))


def _within_edge(scene: Scene, side: int, sign: int, n: int) -> Tensor:
    far = _behind_edge(scene, side, sign)
    return torch.zeros((), dtype=torch.bool) if far is None else far < n


def _of_context(scene: Scene, seen: Callable[[str, Callable[[Scene], Tensor]], Extent]) -> Iterator[Extent]:
    """Keys before as many as there are rows, which lie in a cache where the rows are a chunk of a prompt, and the others."""
    if not bool((scene.at.keys > scene.at.rows).any()):
        return

    def before(s: Scene) -> Tensor:
        return key_of(s) < (s.at.keys - s.at.rows)[:, None, :, None]

    yield seen("keys of the context (all but the last ones, as many as there are rows)", before)
    yield seen("the last keys, as many as there are rows", lambda s: ~before(s))


def _walks(t: int, size: int, seen: Callable[[str, Callable[[Scene], Tensor]], Extent]) -> Iterator[Extent]:
    """Whole tiles of `size` keys behind, or before, the one in which a walk over the keys that all rows of a tile of `t` see ends, or begins."""
    rows = "the sequence" if t == FAR else f"the tile of {t} rows, the heads of a group side by side"
    yield seen(
        f"keys behind the tile of {size} keys that holds the last one that every row of {rows} sees",
        partial(lambda s, t, k: key_of(s) >= (over_tile(s, t, common=True, packed=True)[1] // k + 1) * k, t=t, k=size),
    )
    yield seen(
        f"keys before the tile of {size} keys that holds the first one that every row of {rows} sees",
        partial(lambda s, t, k: key_of(s) < over_tile(s, t, common=True, packed=True)[0] // k * k, t=t, k=size),
    )


def tile_extents(size: int) -> Iterator[Extent]:
    """Sets of visible pairs by tiles of `size` keys."""
    yield from tiled(size, lambda words, where: Extent(words, lambda s: visible_of(s) & where(s)))


def tiled(t: int, seen: Callable[[str, Callable[[Scene], Tensor]], Extent]) -> Iterator[Extent]:
    """Sets by tiles of `t` keys."""
    yield seen(
        f"a row's keys in a last tile of {t} that it does not see to its end",
        lambda s: key_of(s) >= (ends_of(s)[1] + 1) // t * t,
    )
    yield seen(f"the keys of the last tile of {t} that a row sees", lambda s: key_of(s) >= ends_of(s)[1] // t * t)
    yield seen(f"the keys of the first tile of {t} that a row sees", lambda s: key_of(s) < (ends_of(s)[0] // t + 1) * t)
    yield seen(f"a row's keys before its first multiple of {t}", lambda s: key_of(s) < -(-ends_of(s)[0] // t) * t)
    yield seen(
        f"the keys behind the first tile of {t} that a row sees", lambda s: key_of(s) >= (ends_of(s)[0] // t + 1) * t
    )
    yield seen(f"the keys before the last tile of {t} that a row sees", lambda s: key_of(s) < ends_of(s)[1] // t * t)
    yield seen(f"the keys of every second tile of {t}", lambda s: key_of(s) // t % 2 == 1)
    yield seen(f"the first key of each tile of {t}", lambda s: key_of(s) % t == 0)
    yield seen(f"the last key of each tile of {t}", lambda s: key_of(s) % t == t - 1)


def _count(which: str, count: int) -> str:
    return f"the {which} key" if count == 1 else f"the {which} {count} keys"
