"""Compile in parallel processes; one that the compiler kills costs one kernel."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from flashverify.child_process import child_environment
from flashverify.compiling.discover import Discovery
from flashverify.compiling.records import Compilation, Job
from flashverify.errors import NoVerdictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ARCHITECTURES", "compile_launches", "compile_subjects", "find_jobs", "find_launches"]

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


def compile_subjects(
    specs: Sequence[str], architectures: Sequence[str] = ARCHITECTURES, *, only: str = "", workers: int | None = None
) -> list[Compilation]:
    """Compile everything that the subjects launch.

    Args:
        specs: see `find_jobs`.
        architectures: see `find_jobs`.
        only: see `find_jobs`.
        workers: processes; one per CPU by default.

    Raises:
        UsageError: an architecture or a subject is not known.
        NoVerdictError: there is nothing to compile.
    """
    return compile_launches(find_jobs(specs, architectures, only=only), workers=workers)


def find_jobs(specs: Sequence[str], architectures: Sequence[str] = ARCHITECTURES, *, only: str = "") -> list[Job]:
    """What there is to compile: launch by launch, for one architecture after the other.

    Args:
        specs: registered names or `module:name`.
        architectures: such as `sm_90`.
        only: only launches whose kernel and label contain this text.

    Raises:
        UsageError: an architecture or a subject is not known.
        NoVerdictError: a subject launches nothing that can be compiled.
    """
    capabilities = [_capability(name) for name in architectures]
    jobs = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        discoveries = list(threads.map(find_launches, specs))
    for spec, found in zip(specs, discoveries, strict=True):
        if found.problem:
            raise NoVerdictError(f"subject {spec!r} gives nothing to compile: {found.problem}")
        jobs += [
            Job(
                subject=spec,
                capability=capability,
                deterministic=found.deterministic,
                launch=launch,
                hazards=tuple(h for h in found.hazards if f" of {launch.kernel} " in h.what),
            )
            for launch in found.launches
            for capability in capabilities
            if only in f"{launch.kernel} {launch.label}"
        ]
    return jobs


def find_launches(spec: str) -> Discovery:
    """The launches of a subject, found in a process of its own.

    Raises:
        UsageError: the subject cannot be loaded or run.
    """
    command = (sys.executable, "-P", "-m", "flashverify.compiling.discover", spec)
    done = subprocess.run(
        command, env=child_environment(interpret=True) | {"OMP_NUM_THREADS": "1"}, capture_output=True, check=False
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [_death(done.returncode)]
        loading = lines[-1].partition("SubjectLoadError: ")[2]
        raise UsageError(loading or f"subject {spec!r}: {lines[-1]}")
    return msgspec.json.decode(done.stdout, type=Discovery)


def compile_launches(jobs: Sequence[Job], *, workers: int | None = None) -> list[Compilation]:
    """The outcome of every job, in their order."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(jobs)):
        waiting.put(index)
    results: list[Compilation | None] = [None] * len(jobs)
    count = min(workers or os.cpu_count() or 1, len(jobs))
    with concurrent.futures.ThreadPoolExecutor(max(count, 1)) as threads:
        for future in [threads.submit(_serve, jobs, waiting, results) for _ in range(count)]:
            future.result()
    return [result for result in results if result is not None]


def _serve(jobs: Sequence[Job], waiting: queue.SimpleQueue[int], results: list[Compilation | None]) -> None:
    """Feed one process after the other until no job is left."""
    process: subprocess.Popen[bytes] | None = None
    try:
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            process = process or _start()
            assert process.stdin is not None
            assert process.stdout is not None
            line = b""
            try:
                process.stdin.write(msgspec.json.encode(jobs[index]) + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                pass
            if line:
                results[index] = msgspec.json.decode(line, type=Compilation)
            else:
                results[index] = _dead(jobs[index], process.wait())
                _close(process)
                process = None
    finally:
        if process is not None:
            _close(process)


def _start() -> subprocess.Popen[bytes]:
    """A process that compiles everything afresh: a stored compilation names the source lines of the checkout that made it."""
    command = (sys.executable, "-P", "-m", "flashverify.compiling.worker")
    return subprocess.Popen(
        command,
        env=child_environment(interpret=False) | {"OMP_NUM_THREADS": "1", "TRITON_ALWAYS_COMPILE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    process.wait()


def _dead(job: Job, code: int) -> Compilation:
    return Compilation(
        subject=job.subject,
        architecture=f"sm_{job.capability}",
        kernel=job.launch.kernel,
        label=job.launch.label,
        error=f"the compiler died: {_death(code)}",
    )


def _death(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _capability(name: str) -> int:
    number = name.removeprefix("sm_")
    if not name.startswith("sm_") or not number.isdigit() or int(number) < 75:
        raise UsageError(f"architecture {name!r} is not accepted: such as {', '.join(ARCHITECTURES)}")
    return int(number)
