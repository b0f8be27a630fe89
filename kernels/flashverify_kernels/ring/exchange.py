"""One step around a ring: tensors go to the next rank, others of the same kind come from the one before."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from flashverify_kernels.ring.sharding import Ring, count


class Exchange:
    """A step that has begun. What is sent must not be written before `wait` returns.

    Args:
        ring: the ring.
        held: `[B, H, keys of the owner, channels]` each, what this rank has.
        owner: the rank whose keys they belong to.
    """

    def __init__(self, ring: Ring, held: Sequence[torch.Tensor], owner: int) -> None:
        self._device = held[0].device
        host = self._device.type == "cuda" and dist.get_backend(ring.group) == "gloo"
        ranks, coming = ring.ranks, count(ring.keys_of((owner - 1) % ring.ranks))
        peers = [_peer(ring, (ring.rank + side) % ranks) for side in (1, -1)]
        self._sent = [(x.cpu() if host else x).contiguous() for x in held]
        self._received = [
            torch.empty(*x.shape[:2], coming, x.shape[3], dtype=x.dtype, device=x.device) for x in self._sent
        ]
        steps = []
        for sent, received in zip(self._sent, self._received, strict=True):
            for way, x, peer in ((dist.isend, sent, peers[0]), (dist.irecv, received, peers[1])):
                if x.numel():
                    steps.append(dist.P2POp(way, x.view(torch.uint8), peer, ring.group))
        self._work = dist.batch_isend_irecv(steps) if steps else []

    def wait(self) -> list[torch.Tensor]:
        """What the rank before had, in the order of `held`."""
        for work in self._work:
            work.wait()
        return [x.to(self._device) for x in self._received]


def _peer(ring: Ring, rank: int) -> int:
    """The number in the default group of a rank of the ring."""
    return rank if ring.group is None else dist.get_global_rank(ring.group, rank)
