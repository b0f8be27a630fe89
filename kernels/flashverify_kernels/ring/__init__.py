"""Ring attention: one sequence spread over the ranks of a process group of `torch.distributed`, forward and backward.

Every rank keeps its queries. The keys and values travel around the ring, and with them, in the backward, the gradients that they have
collected. A rank computes the attention of its queries over the keys that it holds, with the kernels of this package in fp32 outputs,
merges it into what it has by `merge`, and adds the gradients in fp32. After as many steps as ranks all keys have been everywhere, and their
gradients are at home.

    sharding.py   which positions a rank has, and which of a pair of ranks' rows and keys see each other
    exchange.py   one step around the ring
    passes.py     forward and backward
"""

from flashverify_kernels.ring.passes import RingForward, ring_backward, ring_forward
from flashverify_kernels.ring.sharding import SHARDINGS, Ring, Sharding, pieces_of, put, take

__all__ = [
    "SHARDINGS",
    "Ring",
    "RingForward",
    "Sharding",
    "pieces_of",
    "put",
    "ring_backward",
    "ring_forward",
    "take",
]
