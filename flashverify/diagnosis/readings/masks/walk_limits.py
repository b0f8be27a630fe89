"""The tiles that a kernel walks: for each tile of rows those of keys, or for each tile of keys those of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.readings.masks.ends import FAR, ends_of, visible_of

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["Walk", "packed_row", "walk_of"]


class Walk(NamedTuple):
    """The walk of each pair's fixed tile, int64, which broadcast to `[B, Hq, Sq, Sk]`; tiles are numbered in their sequence.

    Attributes:
        tile: in which the walked row or key lies.
        begin: first tile that is walked.
        whole: first tile that needs no mask.
        rest: first tile behind those; not more than `whole` where there are none.
        last: last tile that is walked.
        remainder: rows or keys of the last tile, up to the last one that is seen.
        end_of_first: last tile that the first row, or key, of the fixed tile needs.
        begin_of_last: first tile that its last one needs.
    """

    tile: Tensor
    begin: Tensor
    whole: Tensor
    rest: Tensor
    last: Tensor
    remainder: Tensor
    end_of_first: Tensor
    begin_of_last: Tensor


def packed_row(scene: Scene) -> Tensor:
    """`[B, Hq, Sq, 1]`: the number of each row where the query heads of a group stand side by side, as decoding kernels take them."""
    member = torch.arange(scene.case.heads_q).view(1, -1, 1) % scene.group
    return (scene.at.row[:, None] * scene.group + member).unsqueeze(-1)


def walk_of(scene: Scene, *, keys: bool, fixed: int, size: int, packed: bool = False) -> Walk:
    """The walk over tiles of `size` keys for each tile of `fixed` rows; over rows for each tile of keys where `keys` is False.

    Args:
        scene: the case.
        keys: whether keys are walked.
        fixed: rows, or keys, of the tile that stays; `FAR` is the whole sequence.
        size: keys, or rows, of the tiles that are walked.
        packed: whether the fixed tile holds the query heads of a group side by side; with `keys` only.
    """
    low, high, sure_low, sure_high, first_high, last_low = _ranges(scene, keys=keys, fixed=fixed, packed=packed)
    at = scene.at
    place = at.key[:, None, None, :] if keys else at.row[:, None, :, None]
    stop = torch.where(high < 0, 0, high + 1)
    rest = (sure_high + 1).clamp(min=0) // size
    if not keys:  # a last tile of rows that is not full needs no mask either
        length = at.rows.amax(-1).view(-1, 1, 1, 1)
        rest = torch.where(sure_high + 1 >= length, -(-length // size), rest)
    last = torch.where(high < 0, -1, high // size)
    ends = torch.where(first_high < 0, -1, first_high // size), last_low // size
    return Walk(place // size, low // size, -(-sure_low // size), rest, last, (stop - 1) % size + 1, *ends)


def _ranges(scene: Scene, *, keys: bool, fixed: int, packed: bool) -> tuple[Tensor, ...]:
    """Of each fixed tile the ends of what any of its members sees, of what all of them see, and of what one of them sees.

    The last two are the last place that its first member sees and the first place that its last one sees.
    """
    name = ("walk", keys, fixed, packed)
    if name in scene.memo:
        stored: tuple[Tensor, ...] = scene.memo[name]
        return stored
    at = scene.at
    first, last, there = _ends(scene, keys=keys)
    heads = torch.arange(scene.case.heads_q).view(1, -1, 1)
    if keys:
        number = packed_row(scene).squeeze(-1) if packed else at.row[:, None].expand(first.shape)
        sequence, head = at.row_sequence[:, None], heads // scene.group if packed else heads
    else:
        number, sequence, head = at.key[:, None].expand(first.shape), at.key_sequence[:, None], heads
    place = (sequence * scene.case.heads_q + head) * FAR + number // fixed
    index = torch.unique(place.expand(first.shape), return_inverse=True)[1].flatten(1)
    sure_last = torch.minimum(last, _bits_start(scene, keys=keys, like=last) - 1) if keys else last
    if not keys:
        sure_last = torch.where(at.key[:, None] >= _bits_start(scene, keys=keys, like=last), -FAR, last)

    def over(x: Tensor, how: str, start: int, *, declared: bool = False) -> Tensor:
        x = torch.where(there, x, start) if declared else x
        found = torch.full((x.shape[0], int(index.max()) + 1), start).scatter_reduce(1, index, x.flatten(1), how)
        return found.gather(1, index).view(x.shape).unsqueeze(-1 if keys else -2)

    within = number.expand(first.shape) % fixed
    ended = torch.where(there, within, -1)
    whose_last = over(ended, "amax", -1).squeeze(-1 if keys else -2)
    found = (
        over(first, "amin", FAR),
        over(last, "amax", -FAR),
        over(first, "amax", -FAR, declared=True),
        over(sure_last, "amin", FAR, declared=True),
        over(torch.where(within == 0, last, -FAR), "amax", -FAR),
        over(torch.where(within == whose_last, first, FAR), "amin", FAR),
    )
    scene.memo[name] = found
    return found


def _ends(scene: Scene, *, keys: bool) -> tuple[Tensor, Tensor, Tensor]:
    """First and last key that a row sees, or row that sees a key, `[B, Hq, Sq or Sk]`, and which rows, or keys, are declared."""
    at = scene.at
    if keys:
        first, last = (x.squeeze(-1) for x in ends_of(scene))
        return first, last, (at.row < at.rows)[:, None].expand(first.shape)
    see, row = visible_of(scene), at.row[:, None, :, None]
    first, last = torch.where(see, row, FAR).amin(-2), torch.where(see, row, -FAR).amax(-2)
    return first, last, (at.key < at.key_limit)[:, None].expand(first.shape)


def _bits_start(scene: Scene, *, keys: bool, like: Tensor) -> Tensor:
    """From which key on bits decide, for each row or key."""
    at, mask = scene.at, scene.case.mask
    if mask.bitmap is not None:
        return torch.zeros_like(like)
    if mask.tree is None:
        return torch.full_like(like, FAR)
    if keys:
        return (at.keys - at.rows)[:, None].expand(like.shape)
    lengths = {int(s): int(k - r) for s, k, r in zip(at.row_sequence[0], at.keys[0], at.rows[0], strict=True)}
    starts = [[lengths.get(int(s), FAR) for s in row] for row in at.key_sequence]
    if scene.case.mask.packed is None:
        starts = [[int(at.keys[b, 0] - at.rows[b, 0])] * like.shape[-1] for b in range(like.shape[0])]
    return torch.tensor(starts)[:, None].expand(like.shape)
