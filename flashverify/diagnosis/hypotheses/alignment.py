"""Wrong semantics of where the diagonal of a causal mask or a window lies, and of the row that it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

    Positions = Callable[[Scene], Iterator[tuple[Tensor, str]]]

__all__ = ["ALIGNMENT", "buffer_shifts"]


def buffer_shifts(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Keys - rows, `[B, Sq]`, where one or both are the sizes of the buffers, or of whole pages; only those that are not as declared."""
    at, case, page = scene.at, scene.case, scene.case.storage.page_size or 1
    rows, keys = torch.full_like(at.rows, case.seq_q), torch.full_like(at.keys, case.seq_k)
    for k, q, words in (
        (keys, rows, "of keys and rows"),
        (keys, at.rows, "of keys"),
        (at.keys, rows, "of rows"),
        (-(-keys // page) * page, at.rows, "of the pages of keys"),
    ):
        if case.mask.aligned_at_end and not torch.equal(k - q, at.shift):
            yield k - q, words


_PARTS = ((True, True, ""), (True, False, "of the causal mask alone"), (False, True, "of the window alone"))
"""Whether a causal mask and a window are moved, and which of them in words where one of both is."""


def _banded(scene: Scene, position: Tensor, *, causal: bool = True, window: bool = True) -> Inputs | None:
    """The causal mask and the window of rows that stand at `position`, `[B, Hq or 1, Sq]`; None where the case has neither."""
    mask, j = scene.case.mask, scene.at.key[:, None, None, :]
    position = position.unsqueeze(-1)
    left, right = mask.window or (None, None)
    changed = {}
    if mask.causal is not None and causal:
        changed["causal"] = j <= position
    if left is not None and window:
        changed["left"] = j >= position - left
    if right is not None and window:
        changed["right"] = j <= position + right
    return with_parts(scene, **changed) if changed else None


def _at(positions: Positions) -> Callable[[Scene], Iterator[Alternative]]:
    """Rows stand elsewhere: for the causal mask and the window, or for one of them."""

    def build(scene: Scene) -> Iterator[Alternative]:
        for position, detail in positions(scene):
            for causal, window, part in _PARTS:
                inputs = _banded(scene, position, causal=causal, window=window)
                if inputs is not None:
                    yield Alternative(inputs=inputs, detail=", ".join(filter(None, (detail, part))))
                if scene.case.mask.causal is None or scene.case.mask.window is None:
                    break

    return build


def _row(scene: Scene) -> Tensor:
    return scene.at.row[:, None, :]


def _of_buffers(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    for shift, words in buffer_shifts(scene):
        yield _row(scene) + shift[:, None], words


def _of_the_longest(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Keys - rows, where one or both are the largest of all sequences."""
    at = scene.at
    if not scene.case.mask.aligned_at_end or not at.rows.numel():
        return
    rows, keys = at.rows.amax(), at.keys.amax()
    shifts = ((keys - rows, "of keys and rows"), (keys - at.rows, "of keys"), (at.keys - rows, "of rows"))
    for shift, words in shifts:
        if bool((shift != at.shift).any()):
            yield _row(scene) + shift.expand_as(at.rows)[:, None], words


def _of_first_sequence(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    shift = scene.at.shift
    if scene.case.seq_q and scene.case.mask.aligned_at_end and bool((shift != shift[:1, :1]).any()):
        yield _row(scene) + shift[:1, :1, None], ""


def _shift_sign(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    if bool((scene.at.shift != 0).any()):
        yield (scene.at.row - scene.at.shift)[:, None, :], ""


def _shift_once_more(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    if bool((scene.at.shift != 0).any()):
        yield (scene.at.row + 2 * scene.at.shift)[:, None, :], ""


def _of_row_in_tile(which: str) -> Positions:
    """All rows of a tile stand where its first or its last one does."""

    def positions(scene: Scene) -> Iterator[tuple[Tensor, str]]:
        at = scene.at
        for size in TILES[: 1 + sum(size < scene.case.seq_q for size in TILES)]:
            first = at.row // size * size
            row = first if which == "first" else torch.minimum(first + size, at.rows) - 1
            yield (row + at.shift)[:, None, :], f"a tile of {size} rows"

    return positions


def _row_in_tile(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """The number of the row inside its tile in place of that inside its sequence."""
    for size in TILES:
        if size < scene.case.seq_q:
            yield (scene.at.row % size + scene.at.shift)[:, None, :], f"a tile of {size} rows"
    if TILES[0] < scene.case.seq_q <= TILES[-1]:  # of a larger tile nothing is wrong
        yield (scene.at.row + scene.at.shift)[:, None, :], ""


def _packed_row(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Kernels that lay the query heads of a group into rows count those rows: row i of member m is row i g + m, or i // g."""
    group, at = scene.group, scene.at
    if group > 1:
        member = (torch.arange(scene.case.heads_q) % group).view(1, -1, 1)
        shift = at.shift[:, None, :]
        yield _row(scene) * group + member + shift, "not divided by the heads of a group"
        if scene.case.mask.aligned_at_end:
            moved = (at.keys - group * at.rows)[:, None, :]
            yield _row(scene) * group + member + moved, "not divided by the heads of a group, nor the number of rows"
        yield _row(scene) // group + shift, "divided by the heads of a group once too often"


def _several(sign: int) -> Positions:
    def positions(scene: Scene) -> Iterator[tuple[Tensor, str]]:
        for by in (2, 4, 8, 16, 32, 64, 128):
            yield (scene.at.row + scene.at.shift + sign * by)[:, None, :], f"by {by}"

    return positions


def _causal_alone(positions: Positions) -> Callable[[Scene], Iterator[Alternative]]:
    """Of causal masks: a window has names of its own for its two sides."""
    build = _at(positions)
    return lambda scene: build(scene) if scene.case.mask.causal is not None else iter(())


ALIGNMENT = (
    Semantics(
        name="diagonal-of-the-buffers",
        sentence="the diagonal is aligned by the sizes of the buffers, not by the declared lengths",
        build=_at(_of_buffers),
    ),
    Semantics(
        name="diagonal-of-the-longest",
        sentence="the diagonal is aligned by the lengths of the longest sequence, not by those of each one",
        build=_at(_of_the_longest),
    ),
    Semantics(
        name="diagonal-of-first-sequence",
        sentence="the diagonal of every sequence is aligned by the lengths of the first one",
        build=_at(_of_first_sequence),
    ),
    Semantics(
        name="diagonal-shift-sign",
        sentence="the diagonal is moved by queries minus keys, not by keys minus queries",
        build=_at(_shift_sign),
    ),
    Semantics(
        name="diagonal-shift-twice",
        sentence="the diagonal is moved by keys minus queries twice",
        build=_at(_shift_once_more),
    ),
    Semantics(
        name="diagonal-of-packed-rows",
        sentence="the diagonal is that of the rows as the heads of a group are packed into them",
        build=_at(_packed_row),
    ),
    Semantics(
        name="diagonal-of-first-row-of-tile",
        sentence="all rows of a tile have the causal mask, or the window, of its first row",
        build=_at(_of_row_in_tile("first")),
    ),
    Semantics(
        name="diagonal-of-last-row-of-tile",
        sentence="all rows of a tile have the causal mask, or the window, of its last row",
        build=_at(_of_row_in_tile("last")),
    ),
    Semantics(
        name="diagonal-of-row-in-tile",
        sentence="rows are counted from the begin of their tile: later tiles have the mask of the first one",
        build=_at(_row_in_tile),
    ),
    Semantics(
        name="causal-several-keys-more",
        sentence="the causal mask is shifted: each row also sees several keys after its own",
        build=_causal_alone(_several(1)),
        one_way=True,
    ),
    Semantics(
        name="causal-several-keys-less",
        sentence="the causal mask is shifted: no row sees its own key and the ones just before it",
        build=_causal_alone(_several(-1)),
        one_way=True,
    ),
)
