"""Tasks in processes of their own, several at a time: a mutant may crash its process or never end."""

from __future__ import annotations

import json
import multiprocessing
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from comparison_rules.work import CleanTask, MutantTask, Task, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.process import BaseProcess
    from pathlib import Path

__all__ = ["run_tasks"]

_POLL = 0.05


@dataclass(slots=True)
class _Running:
    task: Task
    process: BaseProcess
    path: Path
    deadline: float


def run_tasks(
    tasks: Sequence[Task],
    *,
    workers: int,
    limit: float,
    folder: Path,
    rules: Sequence[str],
    act: Callable[[Task, str], None] = perform,
) -> Iterator[dict[str, Any]]:
    """The lines that the tasks write, as they end.

    A mutant whose process dies by a signal or outlives `limit` is found by every rule on the list it was at, and goes on with
    the next one. Any other end of a process is a defect of the benchmark.

    Args:
        tasks: in the order in which they are started.
        workers: processes at a time.
        limit: seconds that a process may take.
        folder: for the processes' files.
        rules: names of all rules.
        act: what a process does with a task and the path that it writes to.

    Raises:
        RuntimeError: a process ended with an exception, or the unmutated kernel killed one.
    """
    context = multiprocessing.get_context("spawn")
    waiting, running, started = list(tasks), list[_Running](), 0
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                task, path = waiting.pop(0), folder / f"{started}.jsonl"
                started += 1
                process = context.Process(target=act, args=(task, str(path)), daemon=True)
                process.start()
                running.append(_Running(task, process, path, time.monotonic() + limit))
            for job in [job for job in running if _ended(job)]:
                running.remove(job)
                lines = (
                    [json.loads(text) for text in job.path.read_text(encoding="utf-8").splitlines()]
                    if job.path.exists()
                    else []
                )
                yield from lines
                lost = _lost(job, {line["inputs"] for line in lines}, rules)
                if lost is not None:
                    line, rest = lost
                    yield line
                    waiting += [rest] if rest.lists else []
            time.sleep(_POLL)
    finally:
        for job in running:
            job.process.kill()


def _ended(job: _Running) -> bool:
    if job.process.is_alive() and time.monotonic() > job.deadline:
        job.process.kill()
        job.process.join()
    return not job.process.is_alive()


def _lost(job: _Running, done: set[str], rules: Sequence[str]) -> tuple[dict[str, Any], MutantTask] | None:
    """The line of the list at which a mutant's process died, and what is left to do; None where it ended in order."""
    code = job.process.exitcode
    if code == 0:
        return None
    if isinstance(job.task, CleanTask) or code is None or code > 0:
        name = job.task.subject if isinstance(job.task, CleanTask) else job.task.mutant.name
        raise RuntimeError(f"the process of {name} ended with exit code {code}; its exception is above")
    left = {inputs: cases for inputs, cases in job.task.lists.items() if inputs not in done}
    inputs = next(iter(left))
    cases = left.pop(inputs)
    line = {"mutant": job.task.mutant.name, "inputs": inputs, "cases": len(cases), "died": -code}
    return line | {"first": dict.fromkeys(rules, 1), "crashes": 1}, replace(job.task, lists=left)
