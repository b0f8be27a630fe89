"""Which places a cluster has, and which worker runs at which of them: one place for each GPU, or one for the CPUs of each machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.campaign.gpus import PER_GPU
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Node", "Place", "assignment", "device_of", "memory_of_worker", "places_of", "with_workers"]

_MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster.

    Args:
        id: of the cluster's own.
        address: by which people know it.
        cpus: that the cluster may use.
        gpus: likewise.
    """

    id: str
    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group of workers runs.

    Args:
        name: `10.0.0.3/gpu0` or `10.0.0.3/cpu`.
        node: its machine.
        workers: processes.
        gpu: whether it has a GPU for its own.
    """

    name: str
    node: Node
    workers: int
    gpu: bool


def device_of(asked: str, nodes: Iterable[Node]) -> str:
    """`cpu` or `cuda`; `auto` is a GPU where any machine has one.

    Raises:
        UsageError: `cuda` is asked for in a cluster without GPUs.
    """
    has_gpu = any(node.gpus for node in nodes)
    if asked == "cuda" and not has_gpu:
        raise UsageError("--device='cuda' is not accepted: the cluster has no GPU; use cpu or auto")
    return ("cuda" if has_gpu else "cpu") if asked == "auto" else asked


def places_of(nodes: Sequence[Node], device: str) -> tuple[Place, ...]:
    """Every place of the cluster, with as many workers as it has room for."""
    seen: Counter[str] = Counter()
    found = []
    for node in nodes:
        seen[node.address] += 1
        name = node.address if seen[node.address] == 1 else f"{node.address}#{seen[node.address]}"
        if device == "cpu" and node.cpus:
            found.append(Place(f"{name}/cpu", node, node.cpus, gpu=False))
        elif device == "cuda":
            each = max(1, min(PER_GPU, node.cpus // max(1, node.gpus)))
            found += [Place(f"{name}/gpu{number}", node, each, gpu=True) for number in range(node.gpus)]
    return tuple(found)


def assignment(places: Sequence[Place], workers: int | None = None) -> tuple[str, ...]:
    """The name of the place of each worker; the places take turns until each is full, and then once more.

    Args:
        places: with the workers that they have room for.
        workers: in all; None is as many as there is room for.
    """
    most = sum(place.workers for place in places)
    count = most if workers is None else workers
    rounds = range(max((place.workers for place in places), default=0))
    turn = [place.name for number in rounds for place in places if number < place.workers]
    return tuple(turn[number % most] for number in range(count)) if most else ()


def with_workers(places: Sequence[Place], assigned: Sequence[str]) -> tuple[Place, ...]:
    """The places that have a worker, each with the number of its workers."""
    count = Counter(assigned)
    return tuple(replace(place, workers=count[place.name]) for place in places if count[place.name])


def memory_of_worker(places: Sequence[Place], memory: dict[str, int], compilers: int = 0) -> int | None:
    """Bytes that one worker may use, so that no machine runs out of memory; None where that is not known.

    Args:
        places: with their workers.
        memory: bytes of the machine of each place, by name.
        compilers: processes on each machine that compile ahead, which need half as much.
    """
    workers: Counter[str] = Counter()
    for place in places:
        workers[place.node.id] += place.workers
    shares = [
        memory[place.name] / (workers[place.node.id] + compilers / 2) for place in places if memory.get(place.name)
    ]
    return int(_MEMORY_SHARE * min(shares)) if shares else None
