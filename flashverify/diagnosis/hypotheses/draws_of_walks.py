"""Wrong semantics of the draws of dropout: counted along what a kernel walks, not along the sequence."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.patterns import blocks_tensor
from flashverify.diagnosis.hypotheses.dropout import drawn
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import spread_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["DRAWS_OF_WALKS"]


_BY_MEMBER = "row * group + member"
_ORDERS = ((1, 0, 3, 2), (2, 3, 0, 1), (0, 2, 1, 3), (1, 2, 3, 0), (3, 0, 1, 2), (1, 3, 0, 2), (2, 0, 3, 1))
"""Orders of the four words of a Philox, beside its own and the reverse."""


def _of_others(scene: Scene, axis: int, number: Tensor) -> Tensor:
    """The kept pairs by those of another row (axis 2) or key (axis 3) of the pair's own sequence, whose number is given, `[B, Hq, Sq, Sk]`."""
    kept, at = drawn(scene), scene.at
    own = at.row if axis == 2 else at.key
    begin = torch.arange(own.shape[1]) - own
    begin = begin[:, None, :, None] if axis == 2 else begin[:, None, None, :]
    place = (begin + number.expand(kept.shape)).clamp(0, kept.shape[axis] - 1)
    return kept.gather(axis, place)


def _live(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Rows or keys by their place among those of live blocks."""
    live = blocks_tensor(scene.case)
    if live is None:
        return
    pairs = spread_blocks(scene, live)
    for axis, words in ((3, "keys"), (2, "rows")):
        yield _of_others(scene, axis, pairs.long().cumsum(axis) - 1), f"{words} by their place among the live blocks"


def _visible(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Rows or keys by their place among those that see, or that are seen."""
    see = scene.inputs.visible
    if see is not None:
        see = see.expand(*scene.case.shape_q[:3], scene.case.seq_k)
        yield _of_others(scene, 3, see.long().cumsum(3) - 1), "keys by their place among those that the row sees"
        yield _of_others(scene, 2, see.long().cumsum(2) - 1), "rows by their place among those that see the key"


def _packed_rows(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Rows by their number where those of all query heads of a group lie in one tile, with the stream of the query head or of the kv head."""
    at, case, group = scene.at, scene.case, scene.group
    if group < 2:
        return
    most = int(at.rows.max()) if at.rows.numel() else 0
    for stream, count in (("query head", case.heads_q), ("kv head", case.heads_kv)):
        for how in (_BY_MEMBER, "member * rows + row"):
            found = []
            for head in range(case.heads_q):
                own = at.row_sequence * count + (head if stream == "query head" else head // group)
                member = head % group
                number = at.row * group + member if how == _BY_MEMBER else at.row + member * most
                found.append(drawn(scene, heads=1, sequence=own, row=number))
            yield torch.cat(found, 1), f"rows by {how}, in the stream of the {stream}"


def _of_fours(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """The words of a Philox, which serves four keys, in another order."""
    key = scene.at.key
    for order in _ORDERS:
        number = key - key % 4 + torch.tensor(order)[key % 4]
        words = ", ".join(map(str, order))
        yield drawn(scene, key=number), f"the words of every four keys in the order {words}"


def _from_end(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    at = scene.at
    keys, rows = at.key_limit - 1 - at.key, at.rows - 1 - at.row
    yield _of_others(scene, 3, keys[:, None, None, :]), "keys from the last one on"
    yield _of_others(scene, 2, rows[:, None, :, None]), "rows from the last one on"


def _from_begin(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Rows or keys from the first tile on that the walk of a tile of the other axis reaches."""
    if scene.inputs.visible is None:
        return
    at, shape = scene.at, (*scene.case.shape_q[:3], scene.case.seq_k)
    see = scene.inputs.visible.expand(shape)
    key, row = at.key[:, None, None, :].expand(shape), at.row[:, None, :, None].expand(shape)
    for rows, keys in product(TILES, TILES):
        for number, fixed, axis, sizes, words in (
            (key, row, 3, (rows, keys), "keys"),
            (row, key, 2, (keys, rows), "rows"),
        ):
            first = number.masked_fill(~see, shape[axis]).amin(axis, keepdim=True).expand(shape)
            first = _of_tile(first, fixed, sizes[0], axis)
            begin = first // sizes[1] * sizes[1]
            if bool(((begin > 0) & see).any()):
                yield (
                    _of_others(scene, axis, (number - begin).clamp(min=0)),
                    f"{words} from the first tile of {sizes[1]} on that a tile of {sizes[0]} {'rows' if axis == 3 else 'keys'} sees",
                )


def _of_tile(first: Tensor, number: Tensor, size: int, axis: int) -> Tensor:
    """The least of a tile of the fixed axis; tiles of several packed sequences are kept apart by where they begin."""
    other = 5 - axis
    place = torch.arange(first.shape[other]).view((-1, 1) if other == 2 else (1, -1))
    start = (place - number % size).clamp(min=0)  # where the tile begins in the buffer
    least = first.new_full(first.shape, torch.iinfo(torch.int64).max)
    least.scatter_reduce_(other, start.expand(first.shape), first, "amin")
    return least.gather(other, start.expand(first.shape))


def _build(scene: Scene) -> Iterator[Alternative]:
    if not scene.case.dropout or not scene.case.seq_q or not scene.case.seq_k:
        return
    own = scene.inputs.keep
    for kept, detail in (
        *_live(scene),
        *_visible(scene),
        *_from_end(scene),
        *_packed_rows(scene),
        *_of_fours(scene),
        *_from_begin(scene),
    ):
        if own is None or not torch.equal(kept, own.expand(kept.shape).bool()):
            yield Alternative(inputs=replace(scene.inputs, keep=kept), detail=detail)


DRAWS_OF_WALKS = (
    Semantics(
        name="dropout-counted-along-a-walk",
        sentence="the dropout draws are counted along what a kernel walks, not along the sequence",
        build=_build,
        one_way=True,
    ),
)
