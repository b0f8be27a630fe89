"""Times and peak memory on a device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from triton.errors import TritonError

import flashverify_kernels as kernels
from curves_report.counting import DIRECTIONS, live_blocks
from curves_report.record import Point
from flashverify.bench.clock import clock_of, interleaved
from flashverify.bench.problems import problem_of
from flashverify.bench.records import Workload
from flashverify.bench.run import call_of
from flashverify.subjects import load_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.problem import Problem

    Calls = dict[str, Callable[[], object]]
    Clock = Callable[[Callable[[], object]], float]

__all__ = ["STANDARD", "by_block", "by_length", "by_share", "standard"]

STANDARD = "standard"
_MOST_ROUNDS, _FEWEST_ROUNDS = 21, 3
_MILLISECONDS = 1500.0
"""For all rounds of one place."""
_REFUSALS = (RuntimeError, ValueError, TritonError)


def standard(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """O `[B, H, S, D]` by torch's own products and softmax, with S and P in memory; the scale is applied to q, the smallest operand."""
    return torch.softmax((q * q.shape[-1] ** -0.5) @ k.mT, -1) @ v


def workload(batch: int, heads: int, length: int, dim: int) -> Workload:
    """Self-attention in fp16 without a mask, with a backward."""
    return Workload(
        batch=batch, heads_q=heads, heads_kv=heads, seq_q=length, seq_k=length, dim=dim, dtype="fp16", causal=False, direction="backward"
    )  # fmt: skip


def by_length(work: Workload, specs: tuple[str, ...], device: str, clock: Clock | None = None) -> list[Point]:
    """Time and peak memory of standard attention and of subjects, forward and backward, at one length."""
    problem = problem_of(work, device)
    makers: dict[str, Callable[[str], Callable[[], object]]] = {STANDARD: partial(_standard_call, problem)}
    for spec in specs:
        makers[spec] = partial(call_of, load_subject(spec), problem)
    found = []
    for direction in DIRECTIONS:
        found += _timed("length", work.seq_q, direction, makers, device, clock)
        for series, make in makers.items():
            place = {"curve": "length", "series": series, "direction": direction, "x": work.seq_q, "quantity": "bytes"}
            if device == "cuda":
                found.append(_peak(make, direction, place))
    return found


def by_block(work: Workload, tiles: tuple[int, ...], device: str) -> list[Point]:
    """Time of the bundled kernels in tiles of so many queries and keys."""
    problem = problem_of(work, device)
    found = []
    for tile in tiles:
        config = kernels.LaunchConfig(block_m=tile, block_n=tile, num_warps=8 if tile >= 128 else 4)
        options = kernels.Options(config=kernels.Configs(forward=config, dq=config, dkdv=config))
        makers = {"bundled": partial(_kernel_call, problem, options)}
        for direction in DIRECTIONS:
            found += _timed("block", tile, direction, makers, device)
    return found


def by_share(work: Workload, block: int, shares: tuple[float, ...], device: str) -> list[Point]:
    """Time of the bundled kernels where a random share of the blocks is live."""
    problem = problem_of(work, device)
    found = []
    for share in shares:
        live = live_blocks(work.seq_q // block, work.heads_q, share, device)
        options = kernels.Options(blocks=kernels.BlockMask.from_bool(live, block, block))
        makers = {"bundled": partial(_kernel_call, problem, options)}
        for direction in DIRECTIONS:
            found += _timed("share", float(live.float().mean()), direction, makers, device)
    return found


def _standard_call(problem: Problem, direction: str) -> Callable[[], object]:
    inputs = [x.detach() for x in (problem.q, problem.k, problem.v)]
    if direction == "forward":
        return lambda: standard(*inputs)
    for x in inputs:
        x.requires_grad_()
    o = standard(*inputs)
    return lambda: torch.autograd.grad(o, inputs, problem.do, retain_graph=True)


def _kernel_call(problem: Problem, options: Any, direction: str) -> Callable[[], object]:
    inputs = (problem.q, problem.k, problem.v)
    if direction == "forward":
        return lambda: kernels.forward(*inputs, options)
    made = kernels.forward(*inputs, options)
    return lambda: kernels.backward(problem.do, *inputs, made.o, made.lse2, options)


def _timed(
    curve: str, x: float, direction: str, makers: dict[str, Any], device: str, clock: Clock | None = None
) -> list[Point]:
    """Times of one pass of each, interleaved; a series that has no room, or that refuses, has a reason instead."""
    clock = clock or clock_of(device)
    calls: Calls = {}
    reasons: dict[str, str] = {}
    once = 0.0
    for series, make in makers.items():
        try:
            call = make(direction)
            call()
            once += clock(call)
            calls[series] = call
        except _REFUSALS as error:
            reasons[series] = _reason(error)
        call = None
        _emptied(device)
    rounds = int(min(max(_MILLISECONDS / max(once, 1e-3), _FEWEST_ROUNDS), _MOST_ROUNDS))
    times = interleaved(calls, clock, rounds=rounds, warmup=1)
    return [
        Point(
            curve=curve,
            series=series,
            direction=direction,
            x=x,
            quantity="ms",
            values=times.get(series, ()),
            reason=reasons.get(series, ""),
        )
        for series in makers
    ]


def _peak(make: Callable[[str], Callable[[], object]], direction: str, place: dict[str, Any]) -> Point:
    """The peak of what torch allocates on the GPU from before the forward to the end of the pass, beyond what was there."""
    _emptied("cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    try:
        make(direction)()
        torch.cuda.synchronize()
    except _REFUSALS as error:
        return Point(**place, reason=_reason(error))
    return Point(**place, values=(float(torch.cuda.max_memory_allocated() - before),))


def _emptied(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
