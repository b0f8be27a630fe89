"""One run of measurements in this process."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import msgspec

from flashverify.bench.clock import clock_of
from flashverify.bench.counters import check_profiler, counters_of
from flashverify.bench.rivals import FLEX, TUTORIAL, flex_attention, triton_tutorial
from flashverify.bench.run import measure
from flashverify.errors import NoVerdictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashverify.bench.records import Measurement, Workload
    from flashverify.subjects.interface import Subject

__all__ = ["bench", "subject_of"]


def bench(
    specs: Sequence[str],
    work: Sequence[Workload],
    *,
    device: str,
    tutorial: str = "",
    rounds: int = 30,
    warmup: int = 3,
    counters: bool = False,
    each: Callable[[list[Measurement]], None] = lambda _found: None,
) -> list[Measurement]:
    """Times every subject on every workload.

    Args:
        specs: registered names, `module:name` or `flex-attention`; the first is what ratios are taken of.
        work: what is timed.
        device: `cpu` or `cuda`.
        tutorial: the file of Triton's tutorial 06, timed behind `specs`; empty for none.
        rounds: times taken of each subject, interleaved.
        warmup: calls beforehand.
        counters: whether the profiler reads the counters of each subject too, on a GPU.
        each: told the measurements of a workload as soon as they are there.

    Raises:
        UsageError: `device` is unknown, `rounds` or `warmup` is below 1, or `tutorial` is no file of a tutorial.
        NoVerdictError: there is no GPU.
    """
    import torch

    if device not in ("cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: 'cpu' or 'cuda'")
    for name, value in (("rounds", rounds), ("warmup", warmup)):
        if value < 1:
            raise UsageError(f"{name}={value} is not accepted: at least 1")
    if device == "cuda" and not torch.cuda.is_available():
        raise NoVerdictError("no NVIDIA GPU is available: --device cpu times what runs on the CPU")
    if counters:
        check_profiler()
    names = (*specs, TUTORIAL) if tutorial else tuple(specs)
    subjects = [subject_of(spec, device, tutorial) for spec in names]
    elsewhere = [subject.name for subject in subjects if subject.device() != device]
    if elsewhere:
        raise UsageError(f"subject {elsewhere[0]!r} does not run on device={device!r}")
    clock, found = clock_of(device), []
    for workload in work:
        measured = measure(subjects, workload, clock, device=device, rounds=rounds, warmup=warmup)
        if counters:
            measured = [
                _counted(spec, item, tutorial) for spec, item in zip_longest(names, measured) if item is not None
            ]
        each(measured)
        found += measured
    return found


def subject_of(spec: str, device: str, tutorial: str) -> Subject:
    """The subject that a bench calls by this name; `tutorial` is the file of Triton's tutorial."""
    from flashverify.subjects import load_subject

    if spec == FLEX:
        return flex_attention(device)
    return triton_tutorial(tutorial) if tutorial and spec == TUTORIAL else load_subject(spec)


def _counted(spec: str | None, item: Measurement, tutorial: str) -> Measurement:
    """The measurement with the counters of its kernels; the device's limits, which have no `spec`, have none."""
    if spec is None or not item.milliseconds:
        return item
    return msgspec.structs.replace(item, kernels=counters_of(spec, item.workload, tutorial))
