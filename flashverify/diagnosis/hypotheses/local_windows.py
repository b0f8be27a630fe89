"""Wrong semantics of windows that are taken for another kind of local attention: chunks, keys that stay visible, the end of the longest sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import parts, with_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["LOCAL_WINDOWS"]

_KEPT = (1, 2, 3, 4, 5, 6, 8, 16, 32, 64, 128)
"""Numbers of first keys that may stay visible."""


def _position(scene: Scene) -> Tensor:
    return (scene.at.row + scene.at.shift)[:, None, :, None]


def _key(scene: Scene) -> Tensor:
    return scene.at.key[:, None, None, :]


def _chunks(scene: Scene) -> Iterator[Alternative]:
    """A row sees the keys of its own chunk in place of those of its window; chunks are counted from the first key or from the first row."""
    left, right = scene.case.mask.window or (None, None)
    if left is None and right is None:
        return
    j, at = _key(scene), _position(scene)
    widths = {(left or 0) + (right or 0) + 1: "all keys of the window", right: "its right side"}
    if left is not None:
        widths |= {left + 1: "one more than its left side", left: "its left side"}
    for width, words in widths.items():
        if not width:
            continue
        for first, whence in ((0 * at, ""), (scene.at.shift[:, None, :, None], ", counted from the first row")):
            begin = (at - first).div(width, rounding_mode="floor") * width + first
            sides = {}
            if left is not None:
                sides["left"] = j >= begin
            if right is not None:
                sides["right"] = j < begin + width
            yield Alternative(inputs=with_parts(scene, **sides), detail=f"as wide as {words}{whence}")
            if left is not None and scene.case.mask.causal is None and right is None:
                both = sides["left"] & (j < begin + width)
                yield Alternative(
                    inputs=with_parts(scene, left=both),
                    detail=f"as wide as {words}{whence}, with the keys after the row",
                )


def _first_keys(scene: Scene) -> Iterator[Alternative]:
    """The first keys of a sequence are seen whatever the left side of the window says."""
    own = parts(scene).get("left")
    if own is None:
        return
    for count in _KEPT:
        wider = own | (_key(scene) < count)
        if not torch.equal(wider, own):
            yield Alternative(inputs=with_parts(scene, left=wider), detail=f"{count} {'key' if count == 1 else 'keys'}")


def _first_blocks(scene: Scene) -> Iterator[Alternative]:
    """As many first keys as the window has."""
    own, (left, _) = parts(scene).get("left"), scene.case.mask.window or (None, None)
    if own is None or left is None:
        return
    for count, words in ((left, "as many as its left side"), (left + 1, "one more than its left side")):
        yield Alternative(inputs=with_parts(scene, left=own | (_key(scene) < count)), detail=words)


def _of_the_longest(scene: Scene) -> Iterator[Alternative]:
    """Keys before the windows of the longest sequence are left out of all."""
    left, _ = scene.case.mask.window or (None, None)
    own = parts(scene).get("left")
    at = scene.at
    if left is None or own is None or scene.case.mask.packed is not None or not at.keys.numel():
        return
    longest, room = at.keys.amax(), torch.tensor(scene.case.seq_k)
    for keys, whose in ((longest, "the longest sequence"), (room, "the buffer")):
        for rows, words in (
            (at.rows.amax(), "all rows"),
            (torch.tensor(1), "the last row"),
            (torch.tensor(0), "the next row"),
        ):
            begin = keys - rows - left
            if bool((begin > (at.keys - at.rows).amin() - left).all()):
                yield Alternative(
                    inputs=with_parts(scene, left=own & (_key(scene) >= begin)),
                    detail=f"before the windows of {words} of {whose}",
                )


LOCAL_WINDOWS = (
    Semantics(
        name="window-as-chunks",
        sentence="a window is taken for chunks: a row sees the keys of its own chunk, not as many keys before it as its window has",
        build=_chunks,
    ),
    Semantics(
        name="window-keeps-the-first-keys",
        sentence="the first keys of a sequence are seen by every row, also where its window hides them",
        build=_first_keys,
        one_way=True,
    ),
    Semantics(
        name="window-keeps-as-many-first-keys",
        sentence="as many first keys of a sequence as the window has are seen by every row, also where its window hides them",
        build=_first_blocks,
    ),
    Semantics(
        name="window-begins-by-the-longest-sequence",
        sentence="the first key that is read is that of the window in the longest sequence: shorter ones lose keys of their windows",
        build=_of_the_longest,
    ),
)
