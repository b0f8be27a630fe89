"""Wrong semantics of causal masks and of windows, after those of the prefixes that open a causal mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.prefixes import PREFIXES
from flashverify.diagnosis.hypotheses.where_masked import asked_in_some_tiles
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import visited_tiles, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["BANDS"]


def _limits(scene: Scene) -> tuple[Tensor, Tensor, Tensor]:
    """Key number, row's declared position, and that position with the ends of rows and keys aligned, each broadcastable to pairs."""
    at = scene.at
    i, j = at.row[:, None, :, None], at.key[:, None, None, :]
    return j, i + at.shift[:, None, :, None], i + (at.keys - at.rows)[:, None, :, None]


def _one_key_less(scene: Scene) -> Iterator[Alternative]:
    if scene.case.mask.causal is not None:
        j, position, _ = _limits(scene)
        yield Alternative(inputs=with_parts(scene, causal=j < position))


def _one_key_more(scene: Scene) -> Iterator[Alternative]:
    """The key after a row's own, everywhere or where a walk over the tiles that the right mask needs comes by."""
    if scene.case.mask.causal is None:
        return
    j, position, _ = _limits(scene)
    wider = j <= position + 1
    yield Alternative(inputs=with_parts(scene, causal=wider))
    known = [wider.expand(scene.case.batch, 1, scene.case.seq_q, scene.case.seq_k)]
    for pairs, detail in visited_tiles(scene):
        seen_there = wider & pairs
        if not any(torch.equal(seen_there, other) for other in known):
            known.append(seen_there)
            yield Alternative(inputs=with_parts(scene, causal=seen_there), detail=detail)


def _window(side: str, by: int | None) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        left, right = scene.case.mask.window or (None, None)
        j, position, _ = _limits(scene)
        if side == "left" and left is not None:
            yield Alternative(inputs=with_parts(scene, left=None if by is None else j >= position - left - by))
        if side == "right" and right is not None:
            yield Alternative(inputs=with_parts(scene, right=None if by is None else j <= position + right + by))

    return build


def _without(*names: str) -> Callable[[Scene], Iterator[Alternative]]:
    """Without those of the parts `names` that are there; nothing where none is."""

    def build(scene: Scene) -> Iterator[Alternative]:
        mask = scene.case.mask
        window = mask.window or (None, None)
        there = {"causal": mask.causal, "left": window[0], "right": window[1]}
        dropped = [name for name in names if there[name] is not None]
        if dropped:
            yield Alternative(inputs=with_parts(scene, **dict.fromkeys(dropped)))

    return build


def _not_asked_for(scene: Scene) -> Iterator[Alternative]:
    """A causal mask where neither one nor a window is declared, by either alignment."""
    mask = scene.case.mask
    if mask.causal is None and mask.tree is None and mask.window is None:
        j, _, end = _limits(scene)
        yield Alternative(inputs=with_parts(scene, causal=j <= end), detail="aligned at the bottom right")
        yield Alternative(
            inputs=with_parts(scene, causal=j <= scene.at.row[:, None, :, None]), detail="at the top left"
        )


def _one_row(scene: Scene) -> Iterator[Alternative]:
    """A window that a single row does without; of more rows it says that they are right."""
    left, right = scene.case.mask.window or (None, None)
    if scene.case.seq_q == 1 and (left is not None or right is not None):
        yield Alternative(inputs=with_parts(scene, left=None, right=None))


def _aligned(kind: str) -> Callable[[Scene], Iterator[Alternative]]:
    """The causal mask, with the window that stands with it, by the other alignment."""

    def build(scene: Scene) -> Iterator[Alternative]:
        mask = scene.case.mask
        if mask.causal is None or mask.causal == kind:
            return
        j, _, end = _limits(scene)
        position = end if kind == "bottom-right" else scene.at.row[:, None, :, None]
        left, right = mask.window or (None, None)
        changed = {"causal": j <= position}
        if left is not None:
            changed["left"] = j >= position - left
        if right is not None:
            changed["right"] = j <= position + right
        yield Alternative(inputs=with_parts(scene, **changed))

    return build


def _misaligned(scene: Scene) -> Iterator[Alternative]:
    """The window by the other alignment than the one that the causal mask gives it."""
    mask = scene.case.mask
    left, right = mask.window or (None, None)
    j, _, end = _limits(scene)
    start = scene.at.row[:, None, :, None]
    position = start if mask.causal == "bottom-right" else end
    sides = {}
    if left is not None:
        sides["left"] = j >= position - left
    if right is not None:
        sides["right"] = j <= position + right
    for name, part in sides.items():
        yield Alternative(inputs=with_parts(scene, **{name: part}), detail=f"its {name} side")
    if len(sides) > 1:
        yield Alternative(inputs=with_parts(scene, **sides), detail="both sides")


BANDS = (
    *PREFIXES,
    Semantics(
        name="causal-one-key-more",
        sentence="the causal mask is shifted by one: each row also sees the key after its own",
        build=_one_key_more,
    ),
    Semantics(
        name="causal-one-key-less",
        sentence="the causal mask is shifted by one: no row sees its own key",
        build=asked_in_some_tiles(_one_key_less),
    ),
    Semantics(name="causal-ignored", sentence="the causal mask is ignored", build=_without("causal")),
    Semantics(
        name="causal-top-left",
        sentence="the causal mask is aligned at the top left, where bottom right is declared",
        build=_aligned("top-left"),
    ),
    Semantics(
        name="causal-bottom-right",
        sentence="the causal mask is aligned at the bottom right, where top left is declared",
        build=_aligned("bottom-right"),
    ),
    Semantics(
        name="causal-not-asked-for",
        sentence="a causal mask is applied where none is declared",
        build=_not_asked_for,
    ),
    Semantics(
        name="window-left-one-narrower",
        sentence="the window is one key narrower on its left side",
        build=asked_in_some_tiles(_window("left", -1)),
    ),
    Semantics(
        name="window-left-one-wider",
        sentence="the window is one key wider on its left side",
        build=asked_in_some_tiles(_window("left", 1)),
    ),
    Semantics(
        name="window-right-one-narrower",
        sentence="the window is one key narrower on its right side",
        build=asked_in_some_tiles(_window("right", -1)),
    ),
    Semantics(
        name="window-right-one-wider",
        sentence="the window is one key wider on its right side",
        build=asked_in_some_tiles(_window("right", 1)),
    ),
    Semantics(
        name="window-left-ignored", sentence="the left side of the window is ignored", build=_window("left", None)
    ),
    Semantics(
        name="window-right-ignored", sentence="the right side of the window is ignored", build=_window("right", None)
    ),
    Semantics(
        name="window-ignored",
        sentence="the window is ignored, on whichever sides it has one",
        build=_without("left", "right"),
    ),
    Semantics(
        name="window-ignored-for-one-row",
        sentence="the window is ignored where there is a single row",
        build=_one_row,
    ),
    Semantics(
        name="window-misaligned",
        sentence="the window is aligned otherwise than declared: it does not follow the causal mask that it stands with",
        build=_misaligned,
    ),
)
