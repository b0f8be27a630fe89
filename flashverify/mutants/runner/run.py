"""A run over mutants: select, draw the cases once, judge in parallel, keep every result, add up."""

from __future__ import annotations

import hashlib
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.campaign import environment, toolkit
from flashverify.campaign.commands.listing import list_cases
from flashverify.campaign.protocol import CaseList
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.case.text import format_case, parse_case
from flashverify.mutants.build import kernel_files
from flashverify.mutants.mutant import COMPUTED
from flashverify.mutants.runner.folder import MutantFolder
from flashverify.mutants.runner.hunt import Hunter
from flashverify.mutants.runner.judging import Clean, MutantProbe, StoppedError
from flashverify.mutants.runner.records import Header, MutantResult, MutantStatus
from flashverify.mutants.runner.summary import as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flashverify.case.case import Case
    from flashverify.mutants.mutant import Mutant

__all__ = ["MutantRun", "run_mutants"]

_BATCH = 500
"""Cases that one process draws; more of them are drawn by several."""
_ATTEMPTS = 5
"""Seeds that a batch may take, see `campaign.search.draw`."""
_KEPT = 32
"""Mutants that one process judges before it is replaced, since everything that was imported stays in its memory."""
_STAGGER = 0.5
"""Seconds between the starts of two processes that share a GPU."""
Chosen = tuple["Mutant", str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantRun:
    """What to do.

    Attributes:
        mutants: each with the bank that it is counted under.
        equivalent: names of mutants known to change nothing, with the reason.
        out: folder of the run.
        device: `cpu` or `cuda`.
        workers: processes.
        limit: seconds of judging for one mutant.
        cases: drawn per subject.
        seed: of the draws.
        shrink: whether detecting cases are made minimal.
        include_equivalent: whether mutants known to be equivalent are run.
        memory: bytes that a process may use; None is no limit.
        corpus: cases judged before the drawn ones.
        toolkit: what knows attention, `module:name`.
    """

    mutants: tuple[Chosen, ...]
    equivalent: Mapping[str, str]
    out: Path
    device: str = "cpu"
    workers: int = 1
    limit: float = 60.0
    cases: int = 2000
    seed: int = 0
    shrink: bool = True
    include_equivalent: bool = False
    memory: int | None = None
    corpus: tuple[Case, ...] = ()
    toolkit: str = toolkit.BUNDLED

    @property
    def setup(self) -> ProcessSetup:
        """What the processes share. A case hangs once it has run as long as the search of a mutant may take."""
        return ProcessSetup(self.toolkit, self.device, min(60.0, self.limit) if self.device == "cpu" else 120.0)

    def header(self) -> Header:
        """Everything that the results depend on."""
        parts = [repr(mutant) for mutant, _ in self.mutants] + [format_case(case) for case in self.corpus]
        parts += [repr(item) for item in (*sorted(self.equivalent.items()), *kernel_files().items())]
        return Header(
            seed=self.seed,
            cases=self.cases,
            limit=self.limit,
            device=self.device,
            shrink=self.shrink,
            include_equivalent=self.include_equivalent,
            mutants=tuple(mutant.name for mutant, _ in self.mutants),
            digest=hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest(),
            environment=environment.collect(self.device),
        )


def run_mutants(
    run: MutantRun,
    *,
    each: Callable[[MutantResult, int], None] = lambda _result, _left: None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[MutantResult, ...]:
    """Judge the mutants; those that the folder knows already are not judged again.

    Args:
        run: what to do.
        each: called with every new result and the number of mutants that are left.
        stopped: asked about once a second; the run ends early where it is true.

    Returns:
        The results in the order of `run.mutants`, fewer where the run was stopped.

    Raises:
        UsageError: the folder holds something else.
        StoreError: it cannot be read or written.
        NoVerdictError: no cases can be drawn, or a process does not start.
    """
    folder = MutantFolder(run.out, run.header())
    try:
        known = folder.results()
        left = [chosen for chosen in run.mutants if chosen[0].name not in known]
        for chosen in list(left):
            without = _without_judging(run, *chosen)
            if without is not None:
                left.remove(chosen)
                folder.append(without)
                known[without.name] = without
        if left:
            cases = folder.cases()
            if cases is None:
                cases = _draw(run, sorted({mutant.subject for mutant, _ in left}))
                folder.write_cases(cases)
            for done, result in enumerate(_judge(run, left, cases, stopped), 1):
                folder.append(result)
                known[result.name] = result
                each(result, len(left) - done)
        results = tuple(known[mutant.name] for mutant, _ in run.mutants if mutant.name in known)
        folder.write_summary(as_json(results, left=len(run.mutants) - len(results)))
        return results
    finally:
        folder.close()


def _without_judging(run: MutantRun, mutant: Mutant, bank: str) -> MutantResult | None:
    """The result of a mutant that is not judged."""
    status, reason = MutantStatus.NOT_RUN, ""
    if mutant.name in run.equivalent and not run.include_equivalent:
        status, reason = MutantStatus.EQUIVALENT, run.equivalent[mutant.name]
    elif mutant.gpu and run.device != "cuda":
        reason = "only compiled code on a GPU shows it"
    elif run.device == "cuda" and mutant.outputs and not COMPUTED.intersection(mutant.outputs):
        reason = "only the sanitizer of the interpreter shows it"
    else:
        return None
    return MutantResult(
        name=mutant.name,
        bank=bank,
        status=status,
        subject=mutant.subject,
        file=mutant.file,
        modelled_on=mutant.modelled_on,
        reason=reason,
    )


def _draw(run: MutantRun, subjects: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The cases of each subject, drawn in batches, so that they depend on the seed and not on the number of processes."""
    sizes = [min(_BATCH, run.cases - start) for start in range(0, run.cases, _BATCH)]
    tasks = [
        CaseList(subject, (), size, run.seed + _ATTEMPTS * n) for subject in subjects for n, size in enumerate(sizes)
    ]
    with ThreadPoolExecutor(max_workers=run.workers) as pool:
        drawn = list(pool.map(lambda task: list_cases(task, run.setup), tasks))
    found: dict[str, tuple[str, ...]] = {}
    for task, cases in zip(tasks, drawn, strict=True):
        found[task.subject] = tuple(dict.fromkeys((*found.get(task.subject, ()), *cases)))
    return found


def _judge(
    run: MutantRun, left: Sequence[Chosen], drawn: dict[str, tuple[str, ...]], stopped: Callable[[], bool]
) -> Iterator[MutantResult]:
    """Results as they come."""
    corpus = [format_case(case) for case in run.corpus]
    cases = {
        subject: tuple((parse_case(text), text) for text in dict.fromkeys((*corpus, *texts)))
        for subject, texts in drawn.items()
    }
    waiting: queue.SimpleQueue[Chosen] = queue.SimpleQueue()
    for chosen in left:
        waiting.put(chosen)
    answers: queue.SimpleQueue[MutantResult | BaseException | None] = queue.SimpleQueue()
    ended, clean = threading.Event(), Clean()

    def work(number: int) -> None:
        try:
            if run.device != "cpu":
                ended.wait(_STAGGER * number)
            with MutantProbe(run.setup, run.memory, ended.is_set) as probe:
                hunter = Hunter(probe, cases, run.out / "packages", clean, run.limit, run.shrink)
                for judged in range(len(left)):
                    mutant, bank = waiting.get_nowait()
                    if judged and judged % _KEPT == 0:
                        probe.reset()
                    answers.put(hunter.hunt(mutant, bank, run.equivalent.get(mutant.name, "")))
        except (queue.Empty, StoppedError):
            pass
        except BaseException as error:  # of the harness itself: the run ends with it
            answers.put(error)
        finally:
            answers.put(None)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(min(run.workers, len(left)))]
    try:
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            if stopped():
                ended.set()
            try:
                answer = answers.get(timeout=1.0)
            except queue.Empty:
                continue
            if answer is None:
                running -= 1
            elif isinstance(answer, BaseException):
                raise answer
            else:
                yield answer
    finally:  # a process dies with the thread that started it, so no thread ends before its process
        ended.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
