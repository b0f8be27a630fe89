"""Sets of pairs of a row and a key, by a rule that holds on every case: where a backward does something else."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.conditions import Condition, in_words
from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.places import PLACES, region_of
from flashverify.diagnosis.readings.backward.piece_places import pairs_by_pieces, pairs_by_visits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["Place", "covering_places", "expanded", "fixed_places"]

_RULES = 16
"""Rules of one set that are tried: on other cases they may give different ones."""
_KEPT = 14
"""Sets that are looked at, the smallest of those that hold everything wrong."""


class Place(NamedTuple):
    """A set of pairs.

    Attributes:
        words: such as `in the last tile of 64 keys`.
        pairs: bool of a case, broadcasts to its pairs.
        by_value: whether a number in the code stands beside values.
    """

    words: str
    pairs: Callable[[Scene], Tensor]
    by_value: bool = False

    def both(self, other: Place) -> Place:
        """The pairs of both."""
        return Place(f"{self.words} and {other.words}", lambda scene: self.pairs(scene) & other.pairs(scene))


def expanded(place: Place, scene: Scene) -> Tensor:
    """Bool `[B, Hq, Sq, Sk]`."""
    return place.pairs(scene).expand(*scene.case.shape_q[:3], scene.case.seq_k)


def covering_places(scene: Scene, wrong: Tensor, asked: Tensor, by_values: Iterable[Place] = ()) -> list[list[Place]]:
    """Sets that hold every pair of `wrong` and not every one of `asked`, the smallest first, each with the rules that give it here.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`.
        asked: likewise: pairs that were compared.
        by_values: further sets, which are not joined with others.
    """
    found: dict[bytes, tuple[int, list[Place]]] = {}

    def add(place: Place) -> None:
        pairs = expanded(place, scene) & asked
        size = int(pairs.sum())
        if size < int(asked.sum()) and not bool((wrong & ~pairs).any()):
            rules = found.setdefault(bytes(pairs.numpy().tobytes()), (size, []))[1]
            if len(rules) < _RULES:
                rules.append(place)

    for place in (*fixed_places(scene), *_diagonals(scene, wrong)):
        add(place)
    ranked = sorted(found.values(), key=lambda each: each[0])[:_KEPT]
    for number, (_, first) in enumerate(ranked):
        for _, second in ranked[number + 1 :]:
            add(first[0].both(second[0]))
    for place in by_values:
        add(place)
    return [places for _, places in sorted(found.values(), key=lambda each: each[0])][:_KEPT]


def fixed_places(scene: Scene) -> Iterator[Place]:
    """Sets that a case like `scene` may have, but for diagonals."""
    case = scene.case
    numbered = [("member", scene.group), ("head", case.heads_q), ("kv_head", case.heads_kv)]
    sequences = int(scene.at.row_sequence.max()) + 1 if scene.at.row_sequence.numel() else 0
    for condition in PLACES:
        if condition.feature not in ("channel", "row_max"):
            yield _of(condition)
    for name, count in (*numbered, ("sequence", sequences)):
        yield _of(Condition(name, "<", "last"))
        for number in range(count if count <= 8 else 0):
            yield _of(Condition(name, "==", number))
            yield _of(Condition(name, ">=", number))
            yield _of(Condition(name, "<", number))
    for size in TILES:
        for which in range(1, 4):
            yield _from(size * which, "row")
            yield _from(size * which, "key")
        for other in TILES if scene.inputs.visible is not None else ():
            yield from _tiles(size, other)
        for axis in ("row", "key"):
            yield Place(f"in every second tile of {size} {axis}s", _second(size, axis))
            yield Place(f"in tiles of {size} {axis}s that the sequence fills", _filled(size, axis))
    yield Place("at pairs that are hidden", lambda other: ~_visible(other))
    yield Place("at pairs that are visible", _visible)
    yield Place("at pairs that dropout drops", _dropped)
    yield Place("in rows with odd numbers", lambda other: other.at.row[:, None, :, None] % 2 == 1)
    yield Place("at keys with odd numbers", lambda other: other.at.key[:, None, None, :] % 2 == 1)
    yield from (Place(words, pairs) for words, pairs in chain(pairs_by_pieces(), pairs_by_visits(scene)))


def _of(condition: Condition) -> Place:
    words = in_words((condition,)).removeprefix("only ")
    return Place(words, lambda scene: region_of(scene, (condition,)).pairs)


def _from(size: int, axis: str) -> Place:
    def pairs(scene: Scene) -> Tensor:
        at = scene.at
        return at.row[:, None, :, None] >= size if axis == "row" else at.key[:, None, None, :] >= size

    return Place(f"in {axis}s from {size} on", pairs)


def _visible(scene: Scene) -> Tensor:
    see = scene.inputs.visible
    return torch.ones(1, 1, 1, 1, dtype=torch.bool) if see is None else see


def _dropped(scene: Scene) -> Tensor:
    keep = scene.inputs.keep
    return torch.zeros(1, 1, 1, 1, dtype=torch.bool) if keep is None else ~keep.bool()


def _tiles(rows: int, keys: int) -> Iterator[Place]:
    def whole(scene: Scene) -> Tensor:
        shape = (*scene.case.shape_q[:3], scene.case.seq_k)
        see = _visible(scene).expand(shape).double()
        padded = torch.nn.functional.pad(see, (0, -shape[3] % keys, 0, -shape[2] % rows), value=1.0)
        tiles = padded.unfold(2, rows, rows).unfold(3, keys, keys).flatten(4).amin(-1) == 1
        wide = tiles.repeat_interleave(rows, 2).repeat_interleave(keys, 3)
        return wide[:, :, : shape[2], : shape[3]]

    yield Place(f"in tiles of {rows} rows and {keys} keys of which every pair is visible", whole)
    yield Place(f"in tiles of {rows} rows and {keys} keys of which some pair is hidden", lambda scene: ~whole(scene))


def _second(size: int, axis: str) -> Callable[[Scene], Tensor]:
    def pairs(scene: Scene) -> Tensor:
        at = scene.at
        number = at.row[:, None, :, None] if axis == "row" else at.key[:, None, None, :]
        return number // size % 2 == 1

    return pairs


def _filled(size: int, axis: str) -> Callable[[Scene], Tensor]:
    def pairs(scene: Scene) -> Tensor:
        at = scene.at
        if axis == "row":
            return (at.row < at.rows // size * size)[:, None, :, None]
        return (at.key < at.key_limit // size * size)[:, None, None, :]

    return pairs


def _distance(scene: Scene) -> Tensor:
    at = scene.at
    return at.key[:, None, None, :] - (at.row + at.shift)[:, None, :, None]


def _diagonals(scene: Scene, wrong: Tensor) -> Iterator[Place]:
    """Ranges of key - row, from the last visible diagonal for a bottom-right alignment, among hidden and among visible pairs."""
    found = _distance(scene).expand(wrong.shape)[wrong]
    low, high = int(found.min()), int(found.max())
    name = "key - row - (Sk - Sq)" if bool((scene.at.shift != 0).any()) else "key - row"
    window = scene.case.mask.window or (None, None)
    ends = []
    for side, words, sign in ((1, "the right bound of the window", 1), (0, "minus the left bound of the window", -1)):
        bound = window[side]
        if bound is not None:
            ends.append(((low - sign * bound, high - sign * bound), _bound(side, sign), words))
    for offsets, origin, words in sorted(ends, key=lambda each: min(map(abs, each[0]))):  # the nearer bound first
        yield from _ranges(name, offsets, origin, words)
    yield from _ranges(name, (low, high), lambda _scene: 0)
    if name == "key - row":
        from_end = (_distance(scene) - _longer(scene)).expand(wrong.shape)[wrong]
        yield from _ranges(name, (int(from_end.min()), int(from_end.max())), _longer, "Sk - Sq")


def _longer(scene: Scene) -> Tensor:
    """By how many keys the sequence of each row is longer than it has rows."""
    return (scene.at.keys - scene.at.rows)[:, None, :, None]


def _bound(side: int, sign: int) -> Callable[[Scene], int]:
    def value(scene: Scene) -> int:
        window = scene.case.mask.window
        return sign * ((window[side] if window else None) or 0)

    return value


def _ranges(
    name: str, ends: tuple[int, int], origin: Callable[[Scene], int | Tensor], words_of_origin: str = ""
) -> Iterator[Place]:
    """Diagonals from one to another, counted from an origin."""
    low, high = ends

    def end(number: int) -> str:
        if not words_of_origin:
            return str(number)
        return words_of_origin + (f" {'+' if number > 0 else '-'} {abs(number)}" if number else "")

    rules: list[tuple[str, Callable[[Scene], Tensor]]] = [
        (f"{name} >= {end(low)}", lambda other: _distance(other) - origin(other) >= low),
        (f"{name} <= {end(high)}", lambda other: _distance(other) - origin(other) <= high),
    ]
    if low == high:
        rules.insert(0, (f"{name} = {end(low)}", lambda other: _distance(other) - origin(other) == low))
    for words, rule in rules:
        yield Place(f"where {words}", rule)
        yield Place(f"at hidden pairs where {words}", _hidden(rule))


def _hidden(rule: Callable[[Scene], Tensor]) -> Callable[[Scene], Tensor]:
    return lambda scene: rule(scene) & ~_visible(scene)
