"""One step around a ring: tensors go to the next rank, others of the same kind come from the one before."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from flashverify_kernels.ring.sharding import Ring, count


class Exchange:
    """A step that has begun. What is sent must not be written before `wait` returns.

    Through `gloo`, which moves tensors of the CPU only, those of a GPU travel through pinned host memory.

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
        self._step = f"rank {ring.rank} of {ranks}, with the keys of rank {owner}"
        self._sent = [_pinned(x.shape, x.dtype).copy_(x) if host else x.contiguous() for x in held]
        self._received = [_arriving(x, coming, host=host) for x in held]
        steps = []
        for sent, received in zip(self._sent, self._received, strict=True):
            for way, x, peer in ((dist.isend, sent, peers[0]), (dist.irecv, received, peers[1])):
                if x.numel():
                    steps.append(dist.P2POp(way, x.view(torch.uint8), peer, ring.group))
        self._work = dist.batch_isend_irecv(steps) if steps else []

    def wait(self) -> list[torch.Tensor]:
        """What the rank before had, in the order of `held`.

        Raises:
            RuntimeError: a neighbour does not take part within the timeout of the group, or has ended; it names this rank and the step.
        """
        try:
            for work in self._work:
                work.wait()
        except RuntimeError as error:
            raise RuntimeError(f"{self._step}: the exchange with its neighbours failed: {error}") from error
        return [x.to(self._device) for x in self._received]


def _arriving(like: torch.Tensor, keys: int, *, host: bool) -> torch.Tensor:
    """Memory for as many keys of another rank."""
    shape = torch.Size((*like.shape[:2], keys, like.shape[3]))
    return _pinned(shape, like.dtype) if host else torch.empty(shape, dtype=like.dtype, device=like.device)


def _pinned(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, pin_memory=True)


def _peer(ring: Ring, rank: int) -> int:
    """The number in the default group of a rank of the ring."""
    return rank if ring.group is None else dist.get_global_rank(ring.group, rank)
