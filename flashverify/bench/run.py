"""From a list of sizes to workloads, and from a workload to times."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from flashverify.bench.clock import interleaved
from flashverify.bench.limits import COPY, LIMITS, MATRIX, copied, multiplied, product_operations
from flashverify.bench.problems import problem_of
from flashverify.bench.records import PASSES, Measurement, Workload
from flashverify.case.case import DTYPES
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject

__all__ = ["call_of", "measure", "workloads"]

_TOKENS = 16384
_WIDTH = 2048


def workloads(
    *,
    lengths: Sequence[int],
    dims: Sequence[int],
    dtypes: Sequence[str] = ("fp16",),
    masks: Sequence[str] = ("full", "causal"),
    passes: Sequence[str] = PASSES,
    queries: int | None = None,
    batch: int | None = None,
    heads: tuple[int, int] | None = None,
) -> list[Workload]:
    """Every combination of the sizes.

    Args:
        lengths: of the keys, and of the queries where `queries` is None.
        dims: head dimensions.
        dtypes: of the tensors.
        masks: `full`, `causal`.
        passes: `forward`, `backward`.
        queries: per sequence; a few of them make it decoding.
        batch: sequences; by default so many that batch * length is 16,384 tokens, at least 1.
        heads: (query heads, kv heads); by default 2,048 / dim of both.

    Raises:
        UsageError: a value is not accepted.
    """
    for name, values, accepted in (
        ("dtype", dtypes, DTYPES),
        ("mask", masks, ("full", "causal")),
        ("pass", passes, PASSES),
    ):
        for value in values:
            if value not in accepted:
                raise UsageError(f"{name}={value!r} is not accepted: one of {', '.join(accepted)}")
    for name, numbers in (("length", lengths), ("dim", dims), ("queries", [queries or 1]), ("batch", [batch or 1])):
        for number in numbers:
            if number < 1:
                raise UsageError(f"{name}={number} is not accepted: at least 1")
    heads_q, heads_kv = heads or (0, 0)
    return [
        Workload(
            batch=batch or max(1, _TOKENS // length),
            heads_q=heads_q or max(1, _WIDTH // dim),
            heads_kv=heads_kv or max(1, _WIDTH // dim),
            seq_q=queries or length,
            seq_k=length,
            dim=dim,
            dtype=dtype,
            causal=mask == "causal",
            direction=direction,
        )
        for length, dim, dtype, mask, direction in itertools.product(lengths, dims, dtypes, masks, passes)
    ]


def measure(
    subjects: Sequence[Subject],
    workload: Workload,
    clock: Callable[[Callable[[], object]], float],
    *,
    device: str,
    rounds: int,
    warmup: int,
) -> list[Measurement]:
    """The times of every subject on one workload, and of the device's limits."""
    problem = problem_of(workload, device)
    calls: dict[str, Callable[[], object]] = {}
    reasons: dict[str, str] = {}
    for subject in subjects:
        reason = subject.supports.refusal(problem.case)
        if reason is not None:
            reasons[subject.name] = reason
            continue
        try:
            calls[subject.name] = call_of(subject, problem, workload.direction)
        except RuntimeError as error:  # a backend of torch that refuses the problem says so by this
            reasons[subject.name] = str(error).splitlines()[0]
    calls |= {MATRIX: multiplied(workload.dtype, device), COPY: copied(problem)}
    times = interleaved(calls, clock, rounds=rounds, warmup=warmup)
    return [
        Measurement(
            workload=workload,
            subject=name,
            milliseconds=times.get(name, ()),
            reason=reasons.get(name, ""),
            operations=product_operations(device) if name == MATRIX else 0.0,
        )
        for name in (*(subject.name for subject in subjects), *LIMITS)
    ]


def call_of(subject: Subject, problem: Problem, direction: str) -> Callable[[], object]:
    """One pass of the subject, tried once; `direction` is `forward` or `backward`."""
    if direction == "forward":
        subject.forward(problem)
        return lambda: subject.forward(problem)
    made = subject.forward(problem)
    subject.backward(problem, made)
    return lambda: subject.backward(problem, made)
