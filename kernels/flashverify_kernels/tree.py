from collections.abc import Sequence
from dataclasses import dataclass

import torch

_WORD = 32


@dataclass(frozen=True, eq=False)
class TreeMask:
    """Which nodes of a tree see which: a node sees itself and its ancestors.

    Attributes:
        bits: `[n, ceil(n / 32)]` int32, contiguous: bit `j % 32` of word `[i, j // 32]` says that node i sees node j.
    """

    bits: torch.Tensor

    def __post_init__(self) -> None:
        n = self.bits.shape[0] if self.bits.dim() == 2 else -1
        if self.bits.dtype != torch.int32 or n < 0 or self.bits.shape[1] != -(-n // _WORD):
            raise ValueError(
                f"bits: expected an int32 tensor [n, ceil(n / 32)], got {self.bits.dtype} {tuple(self.bits.shape)}"
            )
        if not self.bits.is_contiguous():
            raise ValueError(f"bits: expected a contiguous tensor, got strides {self.bits.stride()}")

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.bits.shape[0]

    @classmethod
    def from_parents(cls, parents: Sequence[int] | torch.Tensor, device: torch.device | str = "cpu") -> "TreeMask":
        """Build the mask of a forest.

        Args:
            parents: for each node its parent, a smaller number, or -1 for a root.
            device: where the bits are put.

        Returns:
            The mask.

        Raises:
            TypeError: `parents` holds something other than whole numbers.
            ValueError: a parent does not come before its node.
        """
        if isinstance(parents, torch.Tensor):
            if parents.dim() != 1 or parents.dtype.is_floating_point or parents.dtype.is_complex:
                raise TypeError(f"parents: expected whole numbers [n], got {parents.dtype} {tuple(parents.shape)}")
            parents = parents.tolist()
        n = len(parents)
        words = -(-n // _WORD)
        seen: list[int] = []
        for node, parent in enumerate(parents):
            if not isinstance(parent, int) or isinstance(parent, bool):
                raise TypeError(f"parents[{node}]: expected a whole number, got {parent!r} ({type(parent).__name__})")
            if not -1 <= parent < node:
                raise ValueError(f"parents[{node}]: expected -1 (a root) or a node before {node}, got {parent}")
            seen.append(1 << node | (seen[parent] if parent >= 0 else 0))
        if not n:
            return cls(torch.zeros(0, 0, dtype=torch.int32, device=device))
        packed = bytearray(b"".join(row.to_bytes(4 * words, "little") for row in seen))
        bits = torch.frombuffer(packed, dtype=torch.int32).reshape(n, words)
        return cls(bits.to(device, copy=True))
