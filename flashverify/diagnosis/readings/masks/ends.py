"""Where a row's visible keys begin and end, for a row alone and for the rows of a tile together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["FAR", "common_to_tile", "ends_of", "key_of", "of_tile", "over_tile", "sizes_of", "tile_range", "visible_of"]


FAR = 1 << 30


def visible_of(scene: Scene) -> Tensor:
    """Bool `[B, Hq, Sq, Sk]`: the declared mask."""
    shape = (*scene.case.shape_q[:3], scene.case.seq_k)
    see = scene.inputs.visible
    return torch.ones(shape, dtype=torch.bool) if see is None else see.expand(shape)


def ends_of(scene: Scene) -> tuple[Tensor, Tensor]:
    """Number of the first and of the last key that each row sees, `[B, Hq, Sq, 1]`; rows without keys have an empty range far away."""
    if "ends" not in scene.memo:
        see, key = visible_of(scene), scene.at.key[:, None, None, :]
        first = torch.where(see, key, FAR).amin(-1, keepdim=True)
        scene.memo["ends"] = first, torch.where(see, key, -FAR).amax(-1, keepdim=True)
    found: tuple[Tensor, Tensor] = scene.memo["ends"]
    return found


def of_tile(scene: Scene, size: int) -> tuple[Tensor, Tensor]:
    """The first key that a row of each tile of `size` rows sees, and the last one."""
    return over_tile(scene, size, common=False)


def common_to_tile(scene: Scene, size: int) -> tuple[Tensor, Tensor]:
    """The largest first key, and the smallest last one, of the rows of each tile of `size` rows."""
    return over_tile(scene, size, common=True)


def tile_range(scene: Scene, size: int) -> Tensor:
    """Bool `[B, Hq, Sq, Sk]`: keys between the first and the last one that a row of the tile sees, its heads side by side."""
    low, high = over_tile(scene, size, common=False, packed=True)
    return (key_of(scene) >= low) & (key_of(scene) <= high)


def over_tile(scene: Scene, size: int, *, common: bool, packed: bool = False) -> tuple[Tensor, Tensor]:
    """The same of tiles in which, where `packed`, the query heads of a group stand side by side, as decoding kernels take them."""
    name = ("ends", size, common, packed)
    if name not in scene.memo:
        at, (first, last) = scene.at, ends_of(scene)
        how, empty = (("amax", "amin"), (-FAR, FAR)) if common else (("amin", "amax"), (FAR, -FAR))
        if common:  # rows without keys have no say
            first, last = torch.where(first == FAR, -FAR, first), torch.where(last == -FAR, FAR, last)
        group = scene.group if packed else 1
        member = torch.arange(first.shape[1]).view(1, -1, 1) % group
        kv_head = torch.arange(first.shape[1]).view(1, -1, 1) // group
        place = (at.row[:, None] * group + member) // size
        number = (at.row_sequence[:, None] * first.shape[1] + kv_head) * FAR + place
        index = torch.unique(number, return_inverse=True)[1].unsqueeze(-1).expand_as(first)
        low_all, high_all = first.flatten(1, 2), last.flatten(1, 2)
        flat = index.flatten(1, 2)
        count = int(index.max()) + 1 if index.numel() else 0
        shape = (first.shape[0], count, 1)
        low = torch.full(shape, empty[0]).scatter_reduce(1, flat, low_all, how[0])
        high = torch.full(shape, empty[1]).scatter_reduce(1, flat, high_all, how[1])
        scene.memo[name] = low.gather(1, flat).view_as(first), high.gather(1, flat).view_as(last)
    found: tuple[Tensor, Tensor] = scene.memo[name]
    return found


def key_of(scene: Scene) -> Tensor:
    """Number of each key in its sequence, `[B, 1, 1, Sk]`."""
    return scene.at.key[:, None, None, :]


def sizes_of(scene: Scene) -> tuple[int, ...]:
    """Sizes of tiles, those that the subject declares first."""
    declared = [size for size in (scene.form.block_n,) if size]
    pages = [scene.case.storage.page_size] if scene.case.storage.page_size else []
    return tuple(dict.fromkeys((*declared, *pages, *TILES)))
