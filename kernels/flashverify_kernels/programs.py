"""How many programs a launch has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify_kernels.validation import CheckedCall


def programs_of(call: CheckedCall, heads: int, length: int, rows: int, block: int) -> int:
    """A program for each tile of each head of each sequence; of packed sequences at most one more each, see `device.order`.

    Args:
        call: the checked call.
        heads: of a sequence.
        length: rows of a sequence, of the longest one where they are packed.
        rows: of a batch.
        block: rows of a tile.
    """
    if call.packed and call.sequences and length:
        return heads * (min(rows, call.sequences * length) // block + call.sequences)
    return call.sequences * heads * -(-length // block)
