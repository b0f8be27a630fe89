"""Terms of the logits that count keys or rows otherwise than declared, or are those of another head."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import ends_of
from flashverify.diagnosis.readings.masks.pieces import launched_pieces
from flashverify.diagnosis.readings.said import listed
from flashverify.diagnosis.readings.weights.term import BIASES, HEADS, Term, bias_of
from flashverify.truth import distances, table_biases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.weights.effect import Effect

    Numbers = Callable[[Scene], Tensor | None]
    """Of a scene the numbers `[B, Sk]` of its keys, or `[B, Sq]` of its rows; None where they are the declared ones by nature."""

__all__ = ["numbered_terms"]

_FEW_ROWS = (2, 4, 8, *TILES)
"""Rows that may share a position."""


def numbered_terms(scene: Scene) -> Iterator[Term]:
    """Each of the biases of a case, and all of them together, with other numbers of keys and of rows, and of other heads."""
    names = [name for name, _ in BIASES if getattr(scene.problem, name) is not None]
    alone = [(name,) for name in names]
    together = [each for n in range(2, len(names) + 1) for each in combinations(names, n)]
    for each in (*alone, *reversed(together)):
        words = listed([dict(BIASES)[name] for name in each])
        for how, keys in _keys(scene):
            verb = "counts" if len(each) == 1 else "count"
            yield Term(words=f"{words} {verb} keys from {how}", kind="exchange", of=partial(_of, names=each, keys=keys))
        for how, rows in _rows(scene):
            verb = "takes" if len(each) == 1 else "take"
            yield Term(words=f"{words} {verb} {how}", kind="exchange", of=partial(_of, names=each, rows=rows))
        if each != ("slopes",):
            verb = "is that" if len(each) == 1 else "are those"
            for how, head in HEADS if scene.case.heads_q > 1 else ():
                yield Term(words=f"{words} {verb} of {how}", kind="exchange", of=partial(_of, names=each, head=head))


def _of(
    effect: Effect,
    names: tuple[str, ...],
    keys: Numbers | None = None,
    rows: Numbers | None = None,
    head: Callable[[Effect, Tensor], Tensor] | None = None,
) -> Tensor | None:
    """What the terms `names` are with other numbers less what they are declared to be."""
    scene, total = effect.scene, None
    key = scene.at.key if keys is None else keys(scene)
    row = scene.at.row + scene.at.shift if rows is None else rows(scene)
    if key is None or row is None:
        return None
    for name in names:
        old = bias_of(effect, name)
        if old is None:
            return None
        if head is not None:
            count = scene.case.heads_q
            new: Tensor | None = old.expand(-1, count, -1, -1)[:, head(effect, torch.arange(count)) % count]
        else:
            new = _placed(scene, name, old, row, key)
        if new is None:
            return None
        total = new - old if total is None else total + (new - old)
    return total


def _placed(scene: Scene, name: str, old: Tensor, row: Tensor, key: Tensor) -> Tensor | None:
    """A bias where rows stand at `row` and keys at `key`."""
    problem, rows, keys = scene.problem, slice(0, scene.case.seq_q), slice(0, scene.case.seq_k)
    if name == "slopes":
        return distances(problem.slopes, row, key)(rows, keys)  # type: ignore[arg-type, no-any-return]
    if name == "relative_bias":
        return table_biases(problem.relative_bias, problem.distance_buckets, row, key)(rows, keys)  # type: ignore[arg-type, no-any-return]
    if scene.case.mask.packed is not None:
        return None
    number = row - scene.at.shift  # a bias is read by the row's number, not by its position
    inside = (number >= 0) & (number < old.shape[2])
    where = number.clamp(0, old.shape[2] - 1)[:, None, :, None].expand(-1, old.shape[1], -1, old.shape[3])
    wide = old.expand(where.shape[0], -1, -1, -1).gather(2, where)
    at = key.clamp(0, old.shape[3] - 1)[:, None, None, :].expand(-1, old.shape[1], wide.shape[2], -1)
    found: Tensor = wide.gather(3, at)
    return found if bool(inside.all()) and bool(((key >= 0) & (key < old.shape[3])).all()) else None


def _keys(scene: Scene) -> Iterator[tuple[str, Numbers]]:
    """From which key keys may be counted, in words, and their numbers."""
    if scene.case.storage.page_size:
        yield (
            "the first key of the page",
            lambda s: s.at.key % s.case.storage.page_size if s.case.storage.page_size else None,
        )
    for words, begin in launched_pieces(scene):
        yield f"the first key of {words}", partial(lambda s, b: _less(s, b(s)), b=begin)
    for t in dict.fromkeys((*((scene.form.block_n,) if scene.form.block_n else ()), *TILES)):
        yield f"the first key of the tile of {t}", partial(lambda s, t: s.at.key % t, t=t)
        for by, words in ((t, f"key {t}"), (-t, f"{t} keys before the first one")):
            yield words, partial(lambda s, n: s.at.key - n, n=by)
    if scene.case.mask.packed is not None:
        yield "the start of the buffer", lambda s: torch.arange(s.case.seq_k).expand_as(s.at.key)
    yield "the first one that any row sees", lambda s: s.at.key - ends_of(s)[0].flatten(1).amin(1, keepdim=True)


def _less(scene: Scene, begin: Tensor | None) -> Tensor | None:
    return None if begin is None else scene.at.key - begin


def _rows(scene: Scene) -> Iterator[tuple[str, Numbers]]:
    """Where rows may stand, in words, and their positions."""
    case = scene.case
    yield "the row's number for its position", lambda s: s.at.row
    yield "positions of the bottom-right diagonal", lambda s: s.at.row + s.at.keys - s.at.rows
    for t in TILES:
        yield (
            f"the row's number within its tile of {t} for its number",
            partial(lambda s, t: s.at.row % t + s.at.shift, t=t),
        )
    for t in _FEW_ROWS:
        yield (
            f"the position of the first row of its {t} for the row's",
            partial(lambda s, t: s.at.row // t * t + s.at.shift, t=t),
        )
    if case.mask.packed is not None:
        yield "the row's number in the buffer for that in its sequence", lambda s: _buffer(s.at.row) + s.at.shift
        yield "positions shifted by the ends of the sequences in the buffers, not by their lengths", _shifted_by_ends
        yield "positions shifted by the starts of the sequences in the buffers", lambda s: s.at.row + _starts(s)
    if scene.group > 1:
        yield "row i // group for row i", lambda s: s.at.row // s.group + s.at.shift


def _buffer(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1]).expand_as(x)


def _starts(scene: Scene) -> Tensor:
    """Where the keys of each row's sequence start in their buffer less where its rows do, `[1, Sq]`."""
    packed = scene.case.mask.packed
    assert packed is not None
    begin = torch.tensor([k - q for q, k in zip(packed.cu_q, packed.cu_k, strict=True)])
    return begin[scene.at.row_sequence]


def _shifted_by_ends(scene: Scene) -> Tensor | None:
    at = scene.at
    return at.row + at.shift + _starts(scene) if scene.case.mask.aligned_at_end else None
