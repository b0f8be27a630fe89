"""Which task a free worker gets next."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.campaign.protocol import Batch, CaseList, Chunk, Task
from flashverify.campaign.toolkit import BUNDLED
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["CampaignConfig", "Schedule", "batch_seed"]

_CHUNK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignConfig:
    """Everything that a campaign is told.

    Args:
        kind: `run` judges the fixed matrix (or `cases`), `fuzz` searches.
        subjects: specs.
        out: the run folder.
        device: `cpu` or `cuda`, resolved.
        workers: processes.
        seconds: time budget of this call; None is none.
        max_cases: cases of the whole run, resumed ones included; None is none.
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
        grace: seconds after the budget within which what has begun may end; an eighth of the budget at most.
        memory: bytes that one worker may use; None is no limit.
        toolkit: `module:name` of the toolkit.
        command: the command line, for the record.
        numerics: of interpreted kernels.
        environment: variables of the workers, beside those of this process.
        profile: how large drawn cases are; empty is that of the device.
    """

    kind: str
    subjects: tuple[str, ...]
    out: Path
    device: str
    workers: int
    seed: int = 0
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
    environment: Mapping[str, str] = field(default_factory=dict)
    profile: str = ""

    def __post_init__(self) -> None:
        for name, accepted, good in (
            ("kind", "'run' or 'fuzz'", self.kind in ("run", "fuzz")),
            ("subjects", "at least one, each once", 0 < len(self.subjects) == len(set(self.subjects))),
            ("device", "'cpu' or 'cuda'", self.device in ("cpu", "cuda")),
            ("workers", "1 or more", self.workers >= 1),
            ("seed", "0 <= seed < 2**64", 0 <= self.seed < 2**64),
            ("seconds", "a positive number", self.seconds is None or self.seconds > 0),
            ("max_cases", "1 or more", self.max_cases is None or self.max_cases >= 1),
            ("batch", "1 or more", self.batch >= 1),
            ("explain_share", "0 < explain_share < 1", 0 < self.explain_share < 1),
            ("max_findings", "1 or more", self.max_findings is None or self.max_findings >= 1),
        ):
            if not good:
                raise UsageError(f"{name}={getattr(self, name)!r} is not accepted: {accepted}")


def batch_seed(seed: int, subject: str, batch: int) -> int:
    """Seed of a batch, the same on every machine and for every number of workers."""
    data = json.dumps([seed, subject, batch]).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


class Schedule:
    """Hands out tasks: listings first, then findings to explain (beside a search), then cases, then findings of a matrix.

    Listed cases come in the order in which they were listed, the corpus before the matrix, and both before what is drawn.
    """

    def __init__(self, config: CampaignConfig, claim: Callable[[int], None], batches: int = 0) -> None:
        self._config = config
        self._claim = claim
        self.batches = batches
        self.stopped = False
        self.total: int | None = config.max_cases
        self.order: list[tuple[str, str]] = []
        self._listings: deque[Task] = deque()
        self._chunks: deque[Task] = deque()
        self._barren = 0
        if config.kind == "run" and config.cases:
            for spec in config.subjects:
                self.listed(spec, config.cases)
        elif not batches:
            if config.kind == "fuzz" and config.corpus:
                self._listings.extend(CaseList(spec, corpus=True) for spec in config.subjects)
            if config.kind == "run" or config.matrix:
                self._listings.extend(CaseList(spec) for spec in config.subjects)
        self._room_of_corpus = None if config.max_cases is None else config.max_cases // 2
        if not batches:
            for spec in config.subjects if config.kept else ():
                self.listed(spec, config.kept, corpus=config.kind == "fuzz")

    def listed(self, spec: str, cases: tuple[str, ...], *, corpus: bool = False) -> None:
        """The matrix of a subject is known, or what it accepts of the corpus."""
        if corpus:
            cases = cases[: self._room_of_corpus]
            self._room_of_corpus = None if self._room_of_corpus is None else self._room_of_corpus - len(cases)
        else:
            room = None if self._config.max_cases is None else max(0, self._config.max_cases - len(self.order))
            cases = cases[:room]
        if self._config.kind == "run":
            self.order += [(spec, case) for case in cases]
            self.total = len(self.order)
        # Small chunks towards the end of a short list, so that no worker is left waiting for another.
        size = max(1, min(_CHUNK, len(cases) // (4 * self._config.workers)))
        plan = "fuzz" if corpus else "run"
        self._chunks.extend(Chunk(spec, cases[i : i + size], plan) for i in range(0, len(cases), size))

    def batch_ended(self, results: int) -> None:
        """Three batches in a row without a new case: the space is exhausted."""
        self._barren = 0 if results else self._barren + 1
        self.stopped = self.stopped or self._barren >= 3

    def lost(self, task: Task, answered: int) -> None:
        """A worker died over `task` after it had answered for so many of its cases, the deadly one included."""
        if isinstance(task, CaseList):
            self._listings.append(task)
        elif isinstance(task, Chunk) and task.cases[answered:]:
            self._chunks.appendleft(Chunk(task.subject, task.cases[answered:], task.plan))

    def next(
        self,
        room: int | None,
        busy: bool,
        quarantine: Callable[[str], tuple[str, ...]],
        *,
        explain: Callable[[], Task | None] = lambda: None,
        beside: bool = False,
    ) -> Task | None:
        """The next task.

        Args:
            room: cases that the budget still allows beyond those handed out; None is no limit.
            busy: whether another worker is still judging cases.
            quarantine: the deadly cases of a subject.
            explain: gives the next task about findings; None where there is none now.
            beside: whether findings are explained while cases wait.
        """
        run = self._config.kind == "run"
        if self._listings and not self.stopped:
            return self._listings.popleft()
        if (beside or self.stopped or not (self._chunks or busy)) and (task := explain()) is not None:
            return task
        if self.stopped:
            return None
        if self._chunks:
            return self._chunks.popleft()
        if run:
            return None
        if room is not None and room <= 0:
            return None
        self._claim(self.batches + 1)
        number, self.batches = self.batches, self.batches + 1
        spec = self._config.subjects[number % len(self._config.subjects)]
        examples = self._config.batch if room is None else min(self._config.batch, room)
        seed = batch_seed(self._config.seed, spec, number)
        return Batch(spec, number, seed, examples, quarantine(spec), self._config.profile)

    @property
    def cases_wait(self) -> bool:
        """Whether a list of cases waits, or is still to be made; batches of a search aside."""
        return not self.stopped and bool(self._listings or self._chunks)
