"""Wrong semantics of keys that are chosen by index."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.selection_lists import lists_array
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import all_pairs, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["SELECTIONS"]


def _times(lists: Tensor, blocks: int) -> Tensor:
    """How often each list names each block, float64 `[..., blocks]`."""
    found = torch.zeros((*lists.shape[:-1], blocks + 1), dtype=torch.float64)
    index = lists.long().masked_fill(lists < 0, blocks)
    return found.scatter_add_(-1, index, torch.ones_like(index, dtype=torch.float64))[..., :blocks]


def _table(scene: Scene, lists: Tensor) -> Tensor:
    """How often the lists name the block of each pair, float64, broadcastable to `[B, Hq, Sq, Sk]`."""
    selection, case = scene.case.mask.selection, scene.case
    assert selection is not None
    times = _times(lists, -(-case.seq_k // selection.keys))
    if times.shape[1] > 1:
        times = times.repeat_interleave(scene.group, 1)
    return all_pairs(scene).of(times, selection.rows, selection.keys)


def _lists(scene: Scene) -> Tensor | None:
    lists = lists_array(scene.case)
    return None if lists is None or 0 in (lists.size, scene.case.seq_k) else torch.from_numpy(lists.copy())


def _changed(change: Callable[[Tensor, int], Tensor | None]) -> Callable[[Scene], Iterator[Alternative]]:
    """Other lists, by a function of the lists and the number of blocks."""

    def build(scene: Scene) -> Iterator[Alternative]:
        lists, selection = _lists(scene), scene.case.mask.selection
        if lists is None or selection is None:
            return
        changed = change(lists, -(-scene.case.seq_k // selection.keys))
        if changed is not None:
            yield Alternative(inputs=with_parts(scene, selection=_table(scene, changed) > 0))

    return build


def _minus_one_as_last(scene: Scene) -> Iterator[Alternative]:
    """Entries of -1 name the last block, which counts once, or in the gradients of keys as often as it is named.

    A list that names each block once has an entry of -1 in the place of each one that it named again.
    """
    lists, selection = _lists(scene), scene.case.mask.selection
    if lists is None or selection is None:
        return
    last = -(-scene.case.seq_k // selection.keys) - 1
    inputs = with_parts(scene, selection=_table(scene, lists.masked_fill(lists < 0, last)) > 0)
    yield Alternative(inputs=inputs)
    ascending = lists.sort(-1).values
    again = torch.zeros_like(ascending, dtype=torch.bool)
    again[..., 1:] = ascending[..., 1:] == ascending[..., :-1]
    times = _table(scene, ascending.masked_fill(again | (ascending < 0), last))
    if bool((times > 1).any()):
        inputs = with_parts(scene, selection=times > 0)
        biases = (*inputs.biases, times.clamp(min=1).log())
        yield Alternative(inputs=replace(inputs, biases=biases), outputs=("dk", "dv"))


def _ignored(scene: Scene) -> Iterator[Alternative]:
    if scene.case.mask.selection is not None:
        yield Alternative(inputs=with_parts(scene, selection=None))


def _twice(scene: Scene) -> Iterator[Alternative]:
    lists = _lists(scene)
    if lists is not None:
        times = _table(scene, lists).clamp(min=1).log()
        yield Alternative(inputs=replace(scene.inputs, biases=(*scene.inputs.biases, times)))


def _without_last(scene: Scene) -> Iterator[Alternative]:
    lists = _lists(scene)
    if lists is None:
        return
    ascending = lists.sort(-1).values
    once = ascending.clone()
    once[..., 1:].masked_fill_(ascending[..., 1:] == ascending[..., :-1], -1)
    for order, text in ((lists, "in the order of the list"), (once, "in ascending order")):
        place = torch.arange(order.shape[-1]).where(order >= 0, -1)
        last = place == place.amax(-1, keepdim=True)
        several = last & ((order >= 0).sum(-1, keepdim=True) > 1)
        for lost, beside in ((last, ""), (several, ", where a list names several")):
            left = order.masked_fill(lost, -1)
            yield Alternative(inputs=with_parts(scene, selection=_table(scene, left) > 0), detail=text + beside)


def _of_row_before(lists: Tensor, _blocks: int) -> Tensor:
    return lists[:, :, (torch.arange(lists.shape[2]) - 1).clamp(min=0)]


def _of_row_after(lists: Tensor, _blocks: int) -> Tensor:
    return lists[:, :, (torch.arange(lists.shape[2]) + 1).clamp(max=lists.shape[2] - 1)]


SELECTIONS = (
    Semantics(
        name="selection-minus-one-as-first",
        sentence="an entry of -1 is read as the first block",
        build=_changed(lambda lists, _: lists.clamp(min=0)),
    ),
    Semantics(
        name="selection-minus-one-as-last",
        sentence="an entry of -1 is read as the last block",
        build=_minus_one_as_last,
    ),
    Semantics(name="selection-duplicates-twice", sentence="a block that a list names twice counts twice", build=_twice),
    Semantics(name="selection-last-lost", sentence="the last block of each list is left out", build=_without_last),
    Semantics(
        name="selection-of-row-before",
        sentence="rows see the keys that the list before theirs names",
        build=_changed(_of_row_before),
    ),
    Semantics(
        name="selection-of-row-after",
        sentence="rows see the keys that the list after theirs names",
        build=_changed(_of_row_after),
    ),
    Semantics(
        name="selection-of-first-head",
        sentence="all heads see the keys that the lists of the first kv head name",
        build=_changed(lambda lists, _: lists[:, :1] if lists.shape[1] > 1 else None),
    ),
    Semantics(
        name="selection-of-first-sequence",
        sentence="all sequences see the keys that the lists of the first one name",
        build=_changed(lambda lists, _: lists[:1] if lists.shape[0] > 1 else None),
    ),
    Semantics(name="selection-ignored", sentence="the lists of chosen keys are ignored", build=_ignored),
)
