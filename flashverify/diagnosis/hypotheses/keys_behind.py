"""Wrong semantics of keys behind the last one, which tiles of rows take for whole tiles of keys."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import parts, seen
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.diagnosis.observation import Scene

__all__ = ["KEYS_BEHIND"]


def _whole(scene: Scene) -> Iterator[Alternative]:
    """Whole tiles of keys before the first row of a tile are not masked, those behind the last key neither: a logit of 0 and no value."""
    i, case, at, mask = scene.inputs, scene.case, scene.at, scene.case.mask
    found = parts(scene)
    other = {"tree", "bitmap", "blocks"} & set(found)
    if mask.causal is None or mask.packed is not None or i.keep is not None or i.biases or other or not case.seq_q:
        return
    limit = torch.tensor(case.keys_inside or (case.seq_k,) * case.batch).view(-1, 1, 1, 1)
    launched = {value for _, value in case.launch or () if value in TILES}
    for rows, keys in product(TILES, TILES):
        sure = at.row // rows * rows + at.shift + 1  # keys that every row of the tile sees
        end = (sure // keys * keys)[:, None, :, None]
        extra = int(end.max()) - case.seq_k
        room = (0, max(extra, 0))
        place = torch.arange(case.seq_k + room[1])
        behind = (place >= limit) & (place < end) & found["rows"]
        if bool(behind.any()):
            visible = torch.nn.functional.pad(seen(found).expand(case.batch, -1, -1, -1), room) | behind
            k, v = (torch.nn.functional.pad(x, (0, 0, *room)) for x in (i.k, i.v))
            inputs = replace(i.without_learned(), k=k, v=v, visible=visible)
            for m, n in product(TILES if rows in launched else (rows,), TILES if keys in launched else (keys,)):
                yield Alternative(inputs=inputs, detail=f"tiles of {m} rows and {n} keys, or those that are launched")


KEYS_BEHIND = (
    Semantics(
        name="keys-behind-the-last-weigh-one",
        sentence="tiles of rows that stand behind the last key take tiles of keys behind it for whole: these enter the row sum with a logit of 0",
        build=_whole,
        outputs=FORWARD,
        one_way=True,
    ),
)
