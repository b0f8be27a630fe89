"""Block masks of FlexAttention: by torch's `create_block_mask`, or out of lists of blocks, as programs build them that have no time for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from flashverify.adapters.flex_mods import Condition

__all__ = ["create", "from_blocks"]


def create(mask: Condition, sizes: tuple[int, int, int, int], device: torch.device, block_size: int) -> Any:
    """What `create_block_mask` makes; a call takes a processor longer than all other work on a small case.

    Args:
        mask: of (sequence, head, row, key).
        sizes: batch, heads, rows and keys.
        device: of the tensors.
        block_size: rows and keys of a block.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(mask, *sizes, device=str(device), BLOCK_SIZE=block_size)


def from_blocks(mask: Condition, sizes: tuple[int, int, int, int], device: torch.device, block_size: int) -> Any:
    """The same block mask out of lists of the blocks of each row and of each column of blocks; arguments as those of `create`.

    The mask is asked for all pairs at once. `BlockMask.from_kv_blocks` would find the lists of the columns in those of the rows, which takes
    three times as many operations as all else here.
    """
    import torch
    from torch.nn.attention.flex_attention import BlockMask

    places = [torch.arange(size, device=device) for size in sizes]
    seen = mask(*(place.view(-1, *(1,) * (3 - axis)) for axis, place in enumerate(places))).expand(sizes)
    rows, keys = sizes[2:]
    seen = torch.nn.functional.pad(seen, (0, -keys % block_size, 0, -rows % block_size))
    batch, heads, height, width = seen.shape
    blocks = seen.view(batch, heads, height // block_size, block_size, width // block_size, block_size).sum((3, 5))
    full = blocks == block_size * block_size
    some = (blocks > 0) & ~full
    (kv_num_blocks, kv_indices), (q_num_blocks, q_indices) = _listed(some), _listed(some.mT)
    (full_kv_num_blocks, full_kv_indices), (full_q_num_blocks, full_q_indices) = _listed(full), _listed(full.mT)
    return BlockMask(
        seq_lengths=(rows, keys),
        kv_num_blocks=kv_num_blocks,
        kv_indices=kv_indices,
        full_kv_num_blocks=full_kv_num_blocks,
        full_kv_indices=full_kv_indices,
        q_num_blocks=q_num_blocks,
        q_indices=q_indices,
        full_q_num_blocks=full_q_num_blocks,
        full_q_indices=full_q_indices,
        BLOCK_SIZE=(block_size, block_size),
        mask_mod=mask,
    )


def _listed(chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many blocks of each row of blocks are chosen, and their numbers, before those of the others."""
    import torch

    counted = chosen.to(torch.int32, memory_format=torch.contiguous_format)
    order = torch.argsort(counted, dim=-1, descending=True, stable=True)
    return counted.sum(-1, dtype=torch.int32), order.to(torch.int32)
