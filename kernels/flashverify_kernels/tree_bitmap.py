"""A tree and a bitmap together, as one table of bits."""

import torch

from flashverify_kernels.bitmap import WORD
from flashverify_kernels.packed import Packed

_ALL = 2**WORD - 1


def bits_of_both(words: torch.Tensor, tree: torch.Tensor, keys: int, packed: Packed | None) -> torch.Tensor:
    """The keys that both a bitmap and a tree show; waits for no GPU.

    Args:
        words: `[B or 1, Hq or 1, rows, words]` int32, of the bitmap.
        tree: `[B or 1, 1, nodes, words]` int32, the bits of trees of as many nodes as rows, or as packed sequences have rows.
        keys: of a sequence that is not packed.
        packed: the sequences, each with a tree whose nodes are its last keys, or None.

    Returns:
        `[B or 1, Hq or 1, rows, words]` int32.
    """
    rows, width = words.shape[2:]
    before = torch.full((rows,), keys - rows, device=words.device) if packed is None else _keys_before(packed, rows)
    nodes = tree[:, 0, :rows].long() & _ALL
    nodes = torch.nn.functional.pad(nodes, (1, 1, 0, rows - nodes.shape[1]))  # behind the last node nothing is seen
    nodes[..., 0] = _ALL  # and everything before the first
    place = 1 + torch.arange(width, device=words.device) - (before // WORD)[:, None]
    wide = (nodes.shape[0], rows, width)
    here, last = (nodes.gather(2, x.clamp(0, nodes.shape[2] - 1).expand(wide)) for x in (place, place - 1))
    shift = (before % WORD)[:, None]
    seen = (here << shift) | (last >> (WORD - shift))  # of the word before, the bits that cross into this one
    both: torch.Tensor = words & (seen & _ALL).to(torch.int32)[:, None]
    return both


def _keys_before(packed: Packed, rows: int) -> torch.Tensor:
    """The keys before the nodes of the sequence of each row, `[rows]` int64; without meaning for a row of no sequence."""
    i = torch.arange(rows, device=packed.cu_q.device, dtype=torch.int32)
    if not packed.sequences:
        return i.long()
    sequence = torch.searchsorted(packed.cu_q[1:], i, right=True).clamp(max=packed.sequences - 1)
    return (packed.cu_k.diff() - packed.cu_q.diff()).long().clamp(min=0)[sequence]
