from dataclasses import dataclass

import torch

_MULTIPLE = 16


@dataclass(frozen=True, eq=False)
class BlockMask:
    """A mask of one bool per block of queries by keys; the time of a kernel is proportional to the share of live blocks.

    Both walks have a table per block of the other axis: the live blocks in ascending order, then the number of live blocks
    before each block and in all, and behind these, in the n-th table, the block that has the n-th most live ones (see `device.schedule`).

    Attributes:
        rows: queries per block, a multiple of 16; the last block may be cut by the end of the queries.
        keys: keys per block, likewise.
        along_keys: `[B or 1, Hq or 1, R, 2 K + 2]` int32, R and K being the numbers of blocks.
        along_queries: `[B or 1, Hq or 1, K, 2 R + 2]` int32.
    """

    rows: int
    keys: int
    along_keys: torch.Tensor
    along_queries: torch.Tensor

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B or 1, Hq or 1, blocks of queries, blocks of keys)."""
        batch, heads, rows, _ = self.along_keys.shape
        return batch, heads, rows, self.along_queries.shape[2]

    @classmethod
    def from_bool(cls, live: torch.Tensor, rows: int, keys: int) -> "BlockMask":
        """Build the tables of a pattern, without waiting for the device.

        Args:
            live: `[B or 1, Hq or 1, ceil(Sq / rows), ceil(Sk / keys)]` bool, true where queries see the keys of a block;
                what is shared by expanding is built once.
            rows: queries per block, a multiple of 16.
            keys: keys per block, a multiple of 16.

        Raises:
            TypeError: `live` is no bool tensor.
            ValueError: it has not 4 axes, or a block size is not accepted.
        """
        if not isinstance(live, torch.Tensor) or live.dtype != torch.bool:
            raise TypeError(f"live: expected a bool tensor, got {getattr(live, 'dtype', type(live).__name__)}")
        if live.dim() != 4:
            raise ValueError(f"live: expected 4 axes [B or 1, Hq or 1, blocks, blocks], got shape {tuple(live.shape)}")
        for name, size in (("rows", rows), ("keys", keys)):
            if not isinstance(size, int) or size < _MULTIPLE or size % _MULTIPLE:
                raise ValueError(f"{name}: expected a positive multiple of {_MULTIPLE}, got {size!r}")
        for axis in (0, 1):
            if live.shape[axis] > 1 and live.stride(axis) == 0:
                live = live.narrow(axis, 0, 1)
        return cls(rows, keys, _tables(live), _tables(live.transpose(2, 3)))


def _tables(live: torch.Tensor) -> torch.Tensor:
    """`[..., m, n]` bool -> `[..., m, 2 n + 2]` int32: the numbers of the live entries, the counts before each entry and in all, and the order of the m by their counts."""
    order = torch.argsort((~live).to(torch.uint8), dim=-1, stable=True)
    counts = torch.nn.functional.pad(live.cumsum(-1), (1, 0))
    longest = torch.argsort(counts[..., -1], dim=-1, descending=True, stable=True)
    return torch.cat((order, counts, longest.unsqueeze(-1)), -1).to(torch.int32).contiguous()
