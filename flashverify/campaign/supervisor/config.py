"""What a campaign is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.campaign.supervisor.shard import WHOLE, Shard
from flashverify.campaign.toolkit import BUNDLED
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flashverify.campaign.supervisor.hosts import Host

__all__ = ["CampaignConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignConfig:
    """Everything that a campaign is told.

    Args:
        kind: `run` judges the fixed matrix (or `cases`), `fuzz` searches.
        subjects: specs.
        out: the run folder.
        device: `cpu` or `cuda`, resolved.
        workers: processes.
        shard: which part of the cases and batches is judged.
        seconds: time budget of this call; None is none.
        max_cases: cases of the whole run, resumed ones and those of other shards included; None is none.
        cases: text forms that `run` judges instead of the matrix.
        matrix: whether `fuzz` judges the matrix before it searches.
        kept: text forms of cases that are judged before all others.
        corpus: whether `fuzz` judges the packaged corpus before all else; it takes half of `max_cases` at most.
        shrink: shrink findings; verification happens either way.
        batch: examples per batch of the search.
        case_limit: seconds that one case may take.
        shrink_seconds: time limit of shrinking, per bucket.
        explain_share: of the time, for minimising, verifying and diagnosing findings.
        explain_seconds: seconds of workers that this may take at least where there is no time budget; None is no limit.
        max_findings: findings after which the search ends; None is no limit.
        repeats: fresh verifications of a minimal case.
        grace: seconds after the budget within which what has begun may end; a tenth of the budget at most.
        memory: bytes that one worker may use; None is no limit.
        toolkit: `module:name` of the toolkit.
        command: the command line, for the record.
        numerics: of interpreted kernels.
        compilers: processes that compile ahead of a search on a GPU; 0 is none, and workers compile what they launch.
        environment: variables of the workers, beside those of this process.
        gpus: those over which the workers take turns, as `CUDA_VISIBLE_DEVICES` names them; with none each worker sees all.
        profile: how large drawn cases are; empty is that of the device.
        mps: whether workers that share a GPU do so by NVIDIA's Multi-Process Service, where it starts.
        host: starts the workers elsewhere, at the places that `gpus` names; None is on this machine.
    """

    kind: str
    subjects: tuple[str, ...]
    out: Path
    device: str
    workers: int
    seed: int = 0
    shard: Shard = WHOLE
    seconds: float | None = None
    max_cases: int | None = None
    cases: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    matrix: bool = False
    corpus: bool = False
    shrink: bool = True
    batch: int = 200
    case_limit: float = 60.0
    shrink_seconds: float = 30.0
    explain_share: float = 1 / 3
    explain_seconds: float | None = None
    max_findings: int | None = None
    repeats: int = 3
    grace: float = 120.0
    memory: int | None = None
    toolkit: str = BUNDLED
    command: str = ""
    numerics: str = "ieee"
    compilers: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    profile: str = ""
    mps: bool = False
    host: Host | None = None

    def __post_init__(self) -> None:
        for name, accepted, good in (
            ("kind", "'run' or 'fuzz'", self.kind in ("run", "fuzz")),
            ("subjects", "at least one, each once", 0 < len(self.subjects) == len(set(self.subjects))),
            ("device", "'cpu' or 'cuda'", self.device in ("cpu", "cuda")),
            ("workers", "1 or more", self.workers >= 1),
            ("compilers", "0 or more", self.compilers >= 0),
            ("seed", "0 <= seed < 2**64", 0 <= self.seed < 2**64),
            ("seconds", "a positive number", self.seconds is None or self.seconds > 0),
            ("max_cases", "1 or more", self.max_cases is None or self.max_cases >= 1),
            ("batch", "1 or more", self.batch >= 1),
            ("explain_share", "0 < explain_share < 1", 0 < self.explain_share < 1),
            ("max_findings", "1 or more", self.max_findings is None or self.max_findings >= 1),
        ):
            if not good:
                raise UsageError(f"{name}={getattr(self, name)!r} is not accepted: {accepted}")

    @property
    def ahead(self) -> bool:
        """Whether kernels are compiled ahead: of a search on a GPU that draws cases as large as such a search does."""
        return self.compilers > 0 and self.device == "cuda" and self.kind == "fuzz" and self.profile in ("", "gpu")
