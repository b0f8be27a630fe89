"""From `--engine ray` to the places where the workers of a campaign run."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify.campaign.cluster.address import require_reachable
from flashverify.campaign.cluster.host import ClusterHost
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["connect", "shipped"]

_NOT_SHIPPED = (
    ".git",
    ".venv",
    "venv",
    "__pycache__",
    "node_modules",
    "out",
    "flashverify-out",
    "*.pt",
    "*.safetensors",
)


def connect(subjects: tuple[str, ...], device: str, workers: int | None, out: Path) -> ClusterHost:
    """The places of a Ray cluster, each with a group that answers.

    Args:
        subjects: specs.
        device: `auto`, `cpu` or `cuda`.
        workers: in all; None is as many as the cluster has room for.
        out: the run folder, which stays here.

    Raises:
        UsageError: Ray is not installed, or the cluster is not as this machine.
        NoVerdictError: there is no way to the cluster, or no room.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--engine='ray' is not accepted: Ray is not installed; pip install 'flashverify[ray]'")
    require_reachable(os.environ.get("RAY_ADDRESS"))
    from flashverify.campaign.cluster.ray_cluster import RayCluster

    return ClusterHost(RayCluster(shipped(subjects, Path.cwd(), out)), subjects, device, workers)


def shipped(subjects: Sequence[str], folder: Path, out: Path) -> dict[str, Any]:
    """What every machine is sent: `folder`, where the code of a subject lies in it; otherwise nothing.

    Args:
        subjects: specs.
        folder: the current one, in which modules and files of subjects are looked for.
        out: the run folder, which is left out.
    """
    from flashverify.subjects.source import source_of

    folder = folder.resolve()
    files = [found[0] for spec in subjects if ":" in spec and (found := source_of(spec)) is not None]
    if not any(file.is_relative_to(folder) and "site-packages" not in file.parts for file in files):
        return {}
    here = [str(out.resolve().relative_to(folder))] if out.resolve().is_relative_to(folder) else []
    return {"working_dir": str(folder), "excludes": [*_NOT_SHIPPED, *here]}
