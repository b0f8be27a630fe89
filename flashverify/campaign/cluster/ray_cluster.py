"""The places of a Ray cluster: one actor for each, which holds a group of workers. The only module that imports Ray."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any

import ray
from ray._private.services import find_bootstrap_address
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from flashverify.campaign.cluster.address import require_reachable
from flashverify.campaign.cluster.group import WorkerGroup
from flashverify.campaign.cluster.link import ActorLostError
from flashverify.campaign.cluster.planning import Node
from flashverify.errors import NoVerdictError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.campaign.cluster.planning import Place

__all__ = ["RayCluster"]

_OBJECTS = 80 * 2**20
"""Bytes of the object store of a cluster that is started here: nothing is put into it, and Ray takes no less."""


class RayCluster:
    """The cluster that `RAY_ADDRESS` names or that runs on this machine, or one that is started on it.

    Args:
        shipped: Ray's runtime environment of every group.

    Raises:
        NoVerdictError: there is no way to it.
    """

    def __init__(self, shipped: Mapping[str, Any]) -> None:
        given = {"runtime_env": dict(shipped), "log_to_driver": False, "logging_level": logging.ERROR}
        address = os.environ.get("RAY_ADDRESS") or "auto"
        try:
            if not _joined(address, given):
                ray.init(address="local", include_dashboard=False, object_store_memory=_OBJECTS, **given)
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise NoVerdictError(f"no way to the Ray cluster: {_words(error)}") from error
        _keep_stdout()

    def nodes(self) -> tuple[Node, ...]:
        """The machines that are alive."""
        found = (
            Node(
                each["NodeID"],
                each["NodeManagerAddress"],
                int(each["Resources"].get("CPU", 0)),
                int(each["Resources"].get("GPU", 0)),
            )
            for each in ray.nodes()
            if each["Alive"]
        )
        return tuple(sorted(found, key=lambda node: (node.address, node.id)))

    def group(self, place: Place, subjects: tuple[str, ...]) -> RayGroup:
        """A new group, for which Ray keeps a GPU, or a CPU for each worker."""
        return RayGroup(place, subjects)

    def close(self) -> None:
        """Let go of the cluster; one that was started here ends."""
        ray.shutdown()


class RayGroup:
    """A `WorkerGroup` in an actor: `poll` has a thread of its own, beside the one that takes orders in their order."""

    def __init__(self, place: Place, subjects: tuple[str, ...]) -> None:
        node = place.node
        cpus = node.cpus // node.gpus if place.gpu else node.cpus
        self._actor = (
            ray.remote(concurrency_groups={"orders": 1, "news": 1})(WorkerGroup)
            .options(
                num_cpus=min(place.workers, cpus),
                num_gpus=1 if place.gpu else 0,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(subjects)
        )

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method, in the order of the calls."""
        with contextlib.suppress(RayError):  # a group that is gone is noticed by `ask`
            getattr(self._actor, method).options(concurrency_group="orders").remote(*arguments)

    def ask(self, method: str, *arguments: Any, seconds: float) -> bytes:
        """The answer of a method.

        Raises:
            ActorLostError: the group is gone, or silent for so long.
        """
        try:
            answer: bytes = ray.get(
                getattr(self._actor, method).options(concurrency_group="news").remote(*arguments), timeout=seconds
            )
        except GetTimeoutError:
            raise ActorLostError(f"it said nothing for {seconds:.0f} s") from None
        except RayError as error:
            raise ActorLostError(_words(error)) from error
        return answer

    def kill(self) -> None:
        """End it and its workers."""
        with contextlib.suppress(RayError, RuntimeError):
            ray.kill(self._actor)


def _joined(address: str, given: Mapping[str, Any]) -> bool:
    """Whether there is a cluster at an address; that an address by name has none is an error of its own."""
    if address == "local":
        return False
    try:
        if address == "auto":
            require_reachable(find_bootstrap_address(None))  # of a cluster that was killed the address is still noted
        ray.init(address=address, **given)
    except (ConnectionError, NoVerdictError):
        if address != "auto":
            raise
        return False
    return True


def _words(error: BaseException) -> str:
    """The first line of a message of Ray, and behind an exception of ours the last, which names it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    ours = isinstance(error, RayTaskError) or "creation task" in lines[0]
    return " ".join(dict.fromkeys((lines[0][:200], lines[-1][:200] if ours else lines[0][:200])))


def _keep_stdout() -> None:
    """Ray prints that a worker died on stdout, where the verdict is read; the supervisor says it on stderr."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_given, **_named: None
