"""Reuse on a GPU: a pass on another stream, passes on two streams at once, and a CUDA graph that is captured once and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.passes.execution import Execution, execute
from flashverify.outputs import OUTPUTS
from flashverify.subjects.blame import subject_code

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject

__all__ = ["Captured", "at_once", "captured", "on_another_stream"]

_WARM_UP = 3
"""Passes before a capture: what is compiled, tuned or allocated at first use must not be captured."""
_ROUNDS = 8
"""Passes on each of two streams at once: launches of small kernels follow each other closely enough to overlap."""


def on_another_stream(subject: Subject, problem: Problem) -> Execution:
    """A pass on a stream of its own, after everything that was queued before."""
    import torch

    device = problem.q.device
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        execution = execute(subject, problem)
    torch.cuda.current_stream(device).wait_stream(stream)
    torch.cuda.synchronize(device)
    return execution


def at_once(subject: Subject, *problems: Problem) -> list[Execution]:
    """The last of some rounds of passes over each problem, one stream for each, without a wait between the rounds."""
    import torch

    device = problems[0].q.device
    here = torch.cuda.current_stream(device)
    streams = [torch.cuda.Stream(device) for _ in problems]  # type: ignore[no-untyped-call]
    found: list[dict[str, torch.Tensor]] = [{} for _ in problems]
    for stream in streams:
        stream.wait_stream(here)
    for _ in range(_ROUNDS):
        for number, (problem, stream) in enumerate(zip(problems, streams, strict=True)):
            with torch.cuda.stream(stream):
                found[number] = _pass(subject, problem)
    for stream in streams:
        here.wait_stream(stream)
    torch.cuda.synchronize(device)
    return [Execution(problem, outputs, {}, ()) for problem, outputs in zip(problems, found, strict=True)]


class Captured:
    """A captured pass; its outputs lie in the graph's own memory."""

    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: dict[str, torch.Tensor]) -> None:
        self._graph, self._outputs = graph, outputs

    def replay(self, problem: Problem) -> Execution:
        """The outputs of a replay over what the captured tensors hold now, poisoned before it.

        Args:
            problem: what they hold now.
        """
        import torch

        for tensor in self._outputs.values():
            tensor.fill_(float("nan"))
        self._graph.replay()
        if problem.q.is_cuda:
            torch.cuda.synchronize(problem.q.device)
        copies = {name: tensor.clone() for name, tensor in self._outputs.items()}
        return Execution(problem, copies, {}, ())


def captured(subject: Subject, problem: Problem) -> Captured:
    """Captures one pass over the tensors of `problem`.

    Raises:
        RuntimeError: it cannot be captured, as where it waits for the GPU or reads from it.
    """
    import torch

    device = problem.q.device
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            _pass(subject, problem)
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=side):
            outputs = _pass(subject, problem)
    except Exception as error:
        torch.cuda.synchronize(device)
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    return Captured(graph, outputs)


def _pass(subject: Subject, problem: Problem) -> dict[str, torch.Tensor]:
    """Forward and backward as they are, without guard bands."""
    with subject_code():
        forward = subject.forward(problem)
        found: dict[str, torch.Tensor | None] = {"o": forward.o, "lse": forward.lse}
        if problem.case.grad.backward:
            gradients = subject.backward(problem, forward)
            found |= {name: getattr(gradients, name) for name in OUTPUTS[2:]}
    return {name: tensor.detach() for name, tensor in found.items() if tensor is not None}
