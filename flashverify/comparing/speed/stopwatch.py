"""The clock in the process of a side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.bench.clock import clock_of
from flashverify.bench.problems import case_of, problem_of
from flashverify.bench.run import call_of, workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashverify.bench.records import Workload
    from flashverify.subjects.interface import Subject

__all__ = ["INTERPRETED", "Stopwatch", "accepted", "said", "shapes"]

INTERPRETED = "the kernels are interpreted here, and that time says nothing of a GPU's"
_WARMUP = 3
_LENGTHS = {"cuda": (512, 2048, 4096), "cpu": (128, 512)}
_CPU_SIZES: dict[str, Any] = {"batch": 1, "heads": (2, 2)}
_DTYPES = ("fp16", "bf16", "fp32")
_DIMS = (64, 128, 32, 256, 16)


def shapes(subject: Subject, device: str) -> tuple[Workload, ...]:
    """The shapes at which a subject is timed: three lengths on a GPU and two on a CPU, full and causal, forward and backward.

    The first dtype and the first head dim are taken that the subject accepts; one query a sequence where it accepts no more.
    """
    sizes = {} if device == "cuda" else _CPU_SIZES
    for queries in (None, 1):
        for dtype in _DTYPES:
            for dim in _DIMS:
                all_of = workloads(lengths=_LENGTHS[device], dims=(dim,), dtypes=(dtype,), queries=queries, **sizes)
                if found := accepted(subject, all_of):
                    return found
    return ()


def accepted(subject: Subject, work: Sequence[Workload]) -> tuple[Workload, ...]:
    """Those that the subject declares to take."""
    return tuple(each for each in work if subject.supports.refusal(case_of(each)) is None)


class Stopwatch:
    """Times calls of one subject, one shape at a time."""

    def __init__(self, subject: Subject, device: str) -> None:
        self._subject, self._device = subject, device
        self._clock: Callable[[Callable[[], object]], float] | None = None
        self._call: Callable[[], object] | None = None

    def prepare(self, workload: Workload) -> tuple[float, int | None]:
        """Make the tensors, compile and warm up; the time of one call in ms, and the memory that it takes on a GPU, in bytes.

        Raises:
            RuntimeError: the kernels are interpreted.
            Exception: whatever the subject raises.
        """
        self._call = None  # the tensors of the last shape are freed first
        if self._clock is None:
            self._clock = clock_of(self._device)
        launches = _interpreted_launches()
        call = call_of(self._subject, problem_of(workload, self._device), workload.direction)
        if _interpreted_launches() != launches:
            raise RuntimeError(INTERPRETED)
        for _ in range(_WARMUP):
            call()
        memory = _peak(call) if self._device == "cuda" else None
        self._call = call
        return self._clock(call), memory

    def times(self, calls: int) -> float:
        """The median time of so many calls of the shape that was prepared, in ms."""
        assert self._clock is not None
        assert self._call is not None
        found = sorted(self._clock(self._call) for _ in range(calls))
        return (found[(calls - 1) // 2] + found[calls // 2]) / 2


def said(error: Exception) -> str:
    """An error of a subject in one line."""
    return INTERPRETED if str(error) == INTERPRETED else f"{type(error).__name__}: {error}".splitlines()[0][:300]


def _interpreted_launches() -> int:
    """Launches of interpreted kernels in this process."""
    from flashverify.interpreter.session import active

    opened = active()
    return 0 if opened is None else int(opened.launches)


def _peak(call: Callable[[], object]) -> int:
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    handed = torch.cuda.memory_allocated()
    result = call()
    torch.cuda.synchronize()
    del result
    return torch.cuda.max_memory_allocated() - handed
