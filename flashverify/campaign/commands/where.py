"""Where a campaign runs: on which device, with how many processes and how much memory for each, on this machine or in a cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.campaign import environment
from flashverify.campaign.gpus import PER_GPU, chosen_gpus, visible_gpus
from flashverify.campaign.kernel_cache import cache_environment
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flashverify.campaign.cluster.host import ClusterHost
    from flashverify.campaign.commands.settings import Settings

__all__ = ["Where", "default_compilers", "default_workers", "here", "in_cluster"]

_MEMORY_SHARE = 0.8
_ROOM_TO_COMPILE = 4
"""Processors from which on processes compile ahead."""


@dataclass(frozen=True, slots=True)
class Where:
    """See `CampaignConfig`, whose fields these are.

    Args:
        problems: what is not used of a cluster, in words.
    """

    device: str
    workers: int
    compilers: int
    gpus: tuple[str, ...] = ()
    memory: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    mps: bool = False
    host: ClusterHost | None = None
    problems: tuple[str, ...] = ()


def default_workers(device: str, gpus: int = 1) -> int:
    """One per CPU; on each GPU at most `PER_GPU`, which share it."""
    cpus = environment.cpu_count()
    return cpus if device == "cpu" else max(1, gpus, min(PER_GPU * max(1, gpus), cpus - 2))


def default_compilers(kind: str, device: str, workers: int, asked: int | None, *, room: bool = True) -> int:
    """Processes that compile ahead: for a search on a GPU as many as it has workers.

    There are none beside a single worker, and none without `room`, on a machine with few processors: the workers leave them no time, and
    would draw from the one kind of cases that is ready.
    """
    if kind != "fuzz" or device == "cpu":
        return 0
    if asked is not None:
        return asked
    return workers if workers > 1 and room else 0


def here(kind: str, settings: Settings, subjects: tuple[str, ...]) -> Where:
    """On this machine.

    Raises:
        UsageError: a device or a GPU is asked for that is not there.
    """
    device = environment.resolve_device(settings.device)
    gpus = chosen_gpus(settings.gpus, visible_gpus(os.environ) if device == "cuda" else ())
    workers = settings.workers or default_workers(device, len(gpus))
    room = environment.cpu_count() >= _ROOM_TO_COMPILE
    compilers = default_compilers(kind, device, workers, settings.compilers, room=room)
    cache = cache_environment(subjects, os.environ) if device == "cuda" else {}
    if settings.mps and device == "cpu":
        raise UsageError("--mps is not accepted: the subjects do not run on a GPU")
    mps = device == "cuda" and settings.mps is not False and workers > max(1, len(gpus))
    return Where(device, workers, compilers, gpus, _memory_per_worker(workers, compilers), cache, mps)


def _memory_per_worker(workers: int, compilers: int) -> int | None:
    """Of each process; one that compiles needs half as much as one that judges."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return int(_MEMORY_SHARE * total / (workers + compilers / 2))
    except (ValueError, OSError):
        return None


def in_cluster(kind: str, settings: Settings, subjects: tuple[str, ...], out: Path) -> Where:
    """In a Ray cluster; `compilers` are then processes on each machine.

    Raises:
        UsageError: Ray is not installed, or a setting does not go with a cluster.
        NoVerdictError: there is no way to the cluster, or no room.
    """
    from flashverify.campaign.cluster.connecting import connect

    if settings.gpus is not None:
        raise UsageError(
            f"--gpus={settings.gpus!r} is not accepted with --engine ray: the cluster says which GPUs it has"
        )
    if settings.mps:
        raise UsageError("--mps is not accepted with --engine ray: start the service on its machines")
    host = connect(subjects, settings.device, settings.workers, out)
    compilers = default_compilers(kind, host.device, host.most, settings.compilers)
    return Where(
        host.device,
        len(host.assigned),
        compilers,
        host.assigned,
        host.memory(compilers),
        host=host,
        problems=host.problems,
    )
