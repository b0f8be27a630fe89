"""A pattern of blocks over packed sequences, as a table of bits."""

import torch

from flashverify_kernels.bitmap import WORD
from flashverify_kernels.blocks import BlockMask
from flashverify_kernels.packed import Packed


def bits_of_blocks(blocks: BlockMask, packed: Packed, rows: int, max_k: int) -> torch.Tensor:
    """The keys that the live blocks show; waits for no GPU.

    Blocks are counted from the start of the buffers, and a sequence starts anywhere in one: a tile of it has rows and keys of several.

    Args:
        blocks: of `rows` queries and all keys of the buffers.
        packed: the sequences.
        rows: of the buffers.
        max_k: keys of the longest sequence.

    Returns:
        `[B or 1, Hq or 1, rows, ceil(max_k / 32)]` int32, keys numbered within the sequence of the row.
    """
    columns = blocks.along_queries.shape[2]
    live = blocks.along_keys[..., columns:-1].diff(dim=-1)
    width = -(-max_k // WORD)
    words = live.new_zeros(*live.shape[:2], rows, width)
    if not words.numel() or not columns or not packed.sequences:
        return words
    i = torch.arange(rows, device=live.device, dtype=torch.int32)
    sequence = torch.searchsorted(packed.cu_q[1:], i, right=True).clamp(max=packed.sequences - 1)
    first = packed.cu_k[:-1].long()[sequence][:, None] + WORD * torch.arange(width, device=live.device)
    row = (i // blocks.rows)[:, None]
    for bit in range(WORD):
        column = ((first + bit) // blocks.keys).clamp(max=columns - 1)
        words |= live[:, :, row, column] << bit
    return words
