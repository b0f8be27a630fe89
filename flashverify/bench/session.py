"""One run of measurements in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.bench.clock import clock_of
from flashverify.bench.rivals import FLEX, flex_attention, triton_tutorial
from flashverify.bench.run import measure
from flashverify.errors import NoVerdictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashverify.bench.records import Measurement, Workload
    from flashverify.subjects.interface import Subject

__all__ = ["bench"]


def bench(
    specs: Sequence[str],
    work: Sequence[Workload],
    *,
    device: str,
    tutorial: str = "",
    rounds: int = 30,
    warmup: int = 3,
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
        each: told the measurements of a workload as soon as they are there.

    Raises:
        UsageError: `device` is unknown, `rounds` or `warmup` is below 1, or `tutorial` is no file of a tutorial.
        NoVerdictError: there is no GPU.
    """
    import torch

    from flashverify.subjects import load_subject

    if device not in ("cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: 'cpu' or 'cuda'")
    for name, value in (("rounds", rounds), ("warmup", warmup)):
        if value < 1:
            raise UsageError(f"{name}={value} is not accepted: at least 1")
    if device == "cuda" and not torch.cuda.is_available():
        raise NoVerdictError("no NVIDIA GPU is available: --device cpu times what runs on the CPU")
    subjects: list[Subject] = [flex_attention(device) if spec == FLEX else load_subject(spec) for spec in specs]
    if tutorial:
        subjects.append(triton_tutorial(tutorial))
    elsewhere = [subject.name for subject in subjects if subject.device() != device]
    if elsewhere:
        raise UsageError(f"subject {elsewhere[0]!r} does not run on device={device!r}")
    clock, found = clock_of(device), []
    for workload in work:
        measured = measure(subjects, workload, clock, device=device, rounds=rounds, warmup=warmup)
        each(measured)
        found += measured
    return found
