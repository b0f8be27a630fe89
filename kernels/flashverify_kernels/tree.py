from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from flashverify_kernels.bitmap import WORD


@dataclass(frozen=True, eq=False)
class TreeMask:
    """Which nodes of a tree see which: a node sees itself and its ancestors.

    Attributes:
        bits: `[n, words]` int32, contiguous: bit `j % 32` of word `[i, j // 32]` says that node i sees node j. Packed
            sequences have a row per packed query, and nodes numbered within the sequence; so have the entries of a batch
            that have a tree each, one entry behind the other.
    """

    bits: torch.Tensor

    def __post_init__(self) -> None:
        n = self.bits.shape[0] if self.bits.dim() == 2 else -1
        if self.bits.dtype != torch.int32 or n < 0 or self.bits.shape[1] > -(-n // WORD):
            raise ValueError(
                f"bits: expected an int32 tensor [n, words] of at most ceil(n / 32) words, got {self.bits.dtype} {tuple(self.bits.shape)}"
            )
        if not self.bits.is_contiguous():
            raise ValueError(f"bits: expected a contiguous tensor, got strides {self.bits.stride()}")

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.bits.shape[0]

    def words(self, batch: int, rows: int) -> torch.Tensor:
        """The bits as `[1, 1, nodes, words]`, or `[B, 1, rows, words]` where each entry of a batch has a tree."""
        if batch > 1 and rows and self.nodes == batch * rows:
            return self.bits.view(batch, 1, rows, self.bits.shape[1])
        return self.bits[None, None]

    @classmethod
    def from_parents(
        cls,
        parents: Sequence[int] | torch.Tensor,
        device: torch.device | str = "cpu",
        cu: Sequence[int] | torch.Tensor | None = None,
    ) -> "TreeMask":
        """Build the mask of a forest, or of one forest per packed sequence or entry of a batch.

        Args:
            parents: for each node its parent, a smaller number, or -1 for a root; numbered within the sequence.
            device: where the bits are put.
            cu: cumulative numbers of nodes of packed sequences, or of the entries of a batch, from 0 to the number of nodes.

        Returns:
            The mask.

        Raises:
            TypeError: `parents` holds something other than whole numbers.
            ValueError: a parent does not come before its node, or `cu` does not fit the nodes.
        """
        if isinstance(parents, torch.Tensor):
            if parents.dim() != 1 or parents.dtype.is_floating_point or parents.dtype.is_complex:
                raise TypeError(f"parents: expected whole numbers [n], got {parents.dtype} {tuple(parents.shape)}")
            parents = parents.tolist()
        limits = [0, len(parents)] if cu is None else [int(x) for x in cu]
        if not limits or limits[0] != 0 or limits[-1] != len(parents) or limits != sorted(limits):
            raise ValueError(f"cu: expected values that start at 0, never fall and end at {len(parents)}, got {limits}")
        seen: list[int] = []
        for start, end in pairwise(limits):
            for node in range(end - start):
                parent = parents[start + node]
                _check_parent(start + node, node, parent)
                seen.append(1 << node | (seen[start + parent] if parent >= 0 else 0))
        words = -(-max((end - start for start, end in pairwise(limits)), default=0) // WORD)
        if not seen:
            return cls(torch.zeros(0, 0, dtype=torch.int32, device=device))
        packed = bytearray(b"".join(row.to_bytes(4 * words, "little") for row in seen))
        bits = torch.frombuffer(packed, dtype=torch.int32).reshape(len(seen), words)
        return cls(bits.to(device, copy=True))


def _check_parent(index: int, node: int, parent: object) -> None:
    if not isinstance(parent, int) or isinstance(parent, bool):
        raise TypeError(f"parents[{index}]: expected a whole number, got {parent!r} ({type(parent).__name__})")
    if not -1 <= parent < node:
        raise ValueError(f"parents[{index}]: expected -1 (a root) or a node before {node}, got {parent}")
