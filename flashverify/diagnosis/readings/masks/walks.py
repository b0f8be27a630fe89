"""Sets of pairs by the tiles that a kernel walks: the whole ones, those that need a mask, the first and the last."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import FAR, key_of, sizes_of
from flashverify.diagnosis.readings.masks.extent import Extent
from flashverify.diagnosis.readings.masks.walk_limits import Walk, walk_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Tiles = Callable[[Walk], Tensor]

__all__ = ["walked"]


def _whole(w: Walk) -> Tensor:
    return (w.tile >= w.whole) & (w.tile < w.rest)


def _several(w: Walk, count: int) -> Tensor:
    return w.rest - w.whole >= count


def _inside(w: Walk) -> Tensor:
    return (w.tile >= w.begin) & (w.tile <= w.last)


_WHOLE: tuple[tuple[str, Tiles], ...] = (
    ("whole tiles of {walked}", _whole),
    ("the last whole tile of {walked}", lambda w: _whole(w) & (w.tile == w.rest - 1)),
    ("the last of two or more whole tiles of {walked}", lambda w: _whole(w) & (w.tile == w.rest - 1) & _several(w, 2)),
    (
        "the last of three or more whole tiles of {walked}",
        lambda w: _whole(w) & (w.tile == w.rest - 1) & _several(w, 3),
    ),
    (
        "the last whole tile of {walked}, where one that needs a mask follows,",
        lambda w: _whole(w) & (w.tile == w.rest - 1) & (w.last >= w.rest),
    ),
    *(
        (
            f"the last of an {parity} number of whole tiles of {{walked}}",
            lambda w, rest=rest: _whole(w) & (w.tile == w.rest - 1) & ((w.rest - w.whole) % 2 == rest),
        )
        for parity, rest in (("odd", 1), ("even", 0))
    ),
    ("the first whole tile of {walked}", lambda w: _whole(w) & (w.tile == w.whole)),
    ("the first of two or more whole tiles of {walked}", lambda w: _whole(w) & (w.tile == w.whole) & _several(w, 2)),
    ("the first of three or more whole tiles of {walked}", lambda w: _whole(w) & (w.tile == w.whole) & _several(w, 3)),
    ("whole tiles of {walked} behind the first one", lambda w: _whole(w) & (w.tile > w.whole)),
    ("whole tiles of {walked} before the last one", lambda w: _whole(w) & (w.tile < w.rest - 1)),
    ("every second whole tile of {walked}", lambda w: _whole(w) & ((w.tile - w.whole) % 2 == 1)),
)
"""Tiles that need no mask, in words."""

_WALKED: tuple[tuple[str, Tiles], ...] = (
    ("the last tile of {walked}", lambda w: _inside(w) & (w.tile == w.last)),
    (
        "the last tile of {walked} {of} where it holds one {one}",
        lambda w: _inside(w) & (w.tile == w.last) & (w.remainder == 1),
    ),
    (
        "the last of an odd number of tiles of {walked}",
        lambda w: _inside(w) & (w.tile == w.last) & ((w.last - w.begin) % 2 == 0),
    ),
    ("the first tile of {walked}", lambda w: _inside(w) & (w.tile == w.begin)),
    ("every tile of {walked} but the last", lambda w: _inside(w) & (w.tile < w.last)),
    ("every tile of {walked} but the first", lambda w: _inside(w) & (w.tile > w.begin)),
    ("every second tile of {walked}", lambda w: _inside(w) & ((w.tile - w.begin) % 2 == 1)),
    ("tiles of {walked} that need a mask", lambda w: _inside(w) & ~_whole(w)),
    ("tiles of {walked} before the whole ones", lambda w: _inside(w) & (w.tile < w.whole) & (w.rest > w.whole)),
    ("tiles of {walked} behind the whole ones", lambda w: _inside(w) & (w.tile >= w.rest) & (w.rest > w.whole)),
    (
        "tiles of {walked} {of}, behind those that its first {member} sees",
        lambda w: _inside(w) & (w.tile > w.end_of_first),
    ),
    (
        "tiles of {walked} {of}, before those that its last {member} sees",
        lambda w: _inside(w) & (w.tile < w.begin_of_last),
    ),
    (
        "the first tile of {walked} behind the whole ones",
        lambda w: _inside(w) & (w.tile == w.rest) & (w.rest > w.whole),
    ),
)
"""Tiles of a walk, in words."""


def walked(scene: Scene, output: str) -> Iterator[Extent]:
    """Sets of pairs, hidden ones among them, by the tiles that the kernel of `output` may walk, the simpler ones first."""
    for size in sizes_of(scene):
        yield Extent(
            f"tiles of {size} keys that begin at key number Sq or behind it",
            partial(lambda s, t: key_of(s) // t * t >= s.at.rows[:, None, :, None], t=size),
        )
        yield from _by_numbers(size)
    axes = (True,) if output in ("o", "dq") else (False, True)
    for keys in axes:
        group = scene.group if keys else 1
        fixed = [(FAR, False), *((t, False) for t in TILES), *((t, True) for t in TILES if group > 1)]
        for t, packed in fixed:
            for size in sizes_of(scene) if keys else TILES:
                for tiles_in_words, which in ((_WHOLE, _seen), (_WALKED, _of)):
                    for words, tiles in tiles_in_words:
                        said = _worded(words, size, which(t, keys=keys, packed=packed), keys=keys)
                        yield _extent(said, tiles, keys, t, size, packed)


def _by_numbers(size: int) -> Iterator[Extent]:
    """Tiles of `size` keys that a walk leaves out whose limit is a number of a row, not its position, or the width of the other tile."""
    yield Extent(
        f"tiles of {size} keys that begin behind the number of the last row of the row's tile of {size}",
        lambda s: key_of(s) // size * size >= (_row_of(s) // size + 1) * size,
    )
    for t in (each for each in TILES if each != size):
        yield Extent(
            f"tiles of {size} keys that begin behind the last key that row {size - 1} of the row's tile of {t} rows sees, row 0 being the first",
            partial(lambda s, t: key_of(s) // size * size > _row_of(s) // t * t + size - 1 + _edge_of(s), t=t),
        )


def _row_of(scene: Scene) -> Tensor:
    """`[B, 1, Sq, 1]`, the number of each row in its sequence."""
    return scene.at.row[:, None, :, None]


def _edge_of(scene: Scene) -> Tensor:
    """`[B, 1, Sq, 1]`, the last key that the diagonal, or the right side of a window, lets a row see, less the number of the row."""
    mask = scene.case.mask
    right = None if mask.window is None else mask.window[1]
    sides = [side for side in (0 if mask.causal else None, right) if side is not None]
    return (scene.at.shift + min(sides, default=FAR))[:, None, :, None].expand(_row_of(scene).shape)


def _worded(words: str, size: int, of: str, *, keys: bool) -> str:
    axis, one = ("keys", "key") if keys else ("rows", "row")
    if not keys:  # a last tile of rows that is not full needs no mask either
        words = words.replace("the whole ones", "those that need no mask").replace("whole ", "")
    words = words if "{of}" in words else f"{words} {{of}}"
    return words.format(walked=f"{size} {axis}", one=one, of=of, member="row" if keys else "key")


def _extent(words: str, tiles: Tiles, keys: bool, fixed: int, size: int, packed: bool) -> Extent:
    def where(scene: Scene) -> Tensor:
        return tiles(walk_of(scene, keys=keys, fixed=fixed, size=size, packed=packed))

    return Extent(words, where)


def _tile(fixed: int, *, keys: bool, packed: bool) -> str:
    if fixed == FAR:
        return "the sequence"
    beside = ", the heads of a group side by side" if packed else ""
    return f"the tile of {fixed} {'rows' if keys else 'keys'}{beside}"


def _seen(fixed: int, *, keys: bool, packed: bool) -> str:
    """Which tiles are whole."""
    tile = _tile(fixed, keys=keys, packed=packed)
    return f"that every row of {tile} sees" if keys else f"that see every key of {tile}"


def _of(fixed: int, *, keys: bool, packed: bool) -> str:
    """Whose walk it is."""
    tile = _tile(fixed, keys=keys, packed=packed)
    return f"that a row of {tile} sees" if keys else f"that see a key of {tile}"
