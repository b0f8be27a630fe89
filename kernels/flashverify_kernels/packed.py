from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Packed:
    """Sequences of different lengths behind each other in one batch; a query sees keys of its own sequence only.

    Attributes:
        cu_q: `[n + 1]` int32, contiguous: sequence s has the rows `cu_q[s]` to `cu_q[s + 1]` of q; the first entry is 0.
        cu_k: `[n + 1]` int32, likewise for k and v.
        max_q: at least the number of queries of the longest sequence.
        max_k: at least the number of keys of the longest sequence.
    """

    cu_q: torch.Tensor
    cu_k: torch.Tensor
    max_q: int
    max_k: int

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return self.cu_q.shape[0] - 1
