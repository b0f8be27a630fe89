"""The process of a side: `python -m flashverify.comparing.side_main` loads one subject and answers questions about it.

The mode of Triton and the copy of the project were set in its environment before it started.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from flashverify.campaign import environment
from flashverify.campaign.toolkit import load_toolkit
from flashverify.campaign.worker.guard import guard_process, open_channel
from flashverify.case.text import format_case, parse_case
from flashverify.comparing.functions import functions_of
from flashverify.comparing.side_protocol import (
    Accepted,
    Arrays,
    Cases,
    Failed,
    Functions,
    ListCases,
    ListFunctions,
    ListShapes,
    Measure,
    Open,
    Opened,
    OutputArrays,
    Prepare,
    Shapes,
    Time,
    Took,
    WhichAccepted,
    decode_request,
)
from flashverify.errors import FlashverifyError
from flashverify.subjects.sources import require_own_sources

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.comparing.side_protocol import Reply, Request
    from flashverify.comparing.speed.stopwatch import Stopwatch

__all__ = ["main"]

_VERSIONS = ("python", "torch", "triton", "numpy", "gpu", "gpu_arch", "gpu_driver", "machine")
_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


class _Side:
    """The loaded subject of a process."""

    def __init__(self, request: Open) -> None:
        self.toolkit = load_toolkit(request.toolkit)
        self.device = request.device
        self._open = self.toolkit.open(request.device, plain=False, numerics=request.numerics)
        self._open.__enter__()
        self.subject: Any = self.toolkit.load(request.spec)
        self._spec = request.spec
        self._folder = Path(request.folder or os.getcwd()).resolve()
        self._stopwatch: Stopwatch | None = None

    def opened(self) -> Opened:
        versions = environment.collect(self.device)
        return Opened(str(self.subject.name), {name: versions[name] for name in _VERSIONS if name in versions})

    def functions(self) -> Functions:
        """Raises SubjectLoadError where another copy of the project was imported since the subject was loaded."""
        require_own_sources(self._spec)
        return Functions(functions_of(self._folder))

    def cases(self, request: ListCases) -> Cases:
        from flashverify.campaign.corpus import corpus_cases
        from flashverify.campaign.worker.search import draw

        found: list[Case] = []
        if request.fixed:
            found += self.toolkit.matrix(self.subject, self.device)
            found += [case for case in corpus_cases(self.device) if self.toolkit.refusal(self.subject, case) is None]
        if request.drawn:
            found += draw(self.toolkit.strategy(self.subject, self.device), request.drawn, request.seed)
        return Cases(tuple(dict.fromkeys(map(format_case, found))))

    def accepted(self, request: WhichAccepted) -> Accepted:
        return Accepted(tuple(self.toolkit.refusal(self.subject, parse_case(text)) is None for text in request.cases))

    def shapes(self, request: ListShapes) -> Shapes:
        from flashverify.comparing.speed.stopwatch import accepted, shapes

        found = shapes(self.subject, self.device) if request.among is None else accepted(self.subject, request.among)
        return Shapes(found, "cpu" if self.device == "cpu" else self.subject.evidence())

    def prepare(self, request: Prepare) -> Took | Failed:
        """Whatever goes wrong is an answer."""
        from flashverify.comparing.speed.stopwatch import Stopwatch, said

        self._stopwatch = self._stopwatch or Stopwatch(self.subject, self.device)
        try:
            return Took(*self._stopwatch.prepare(request.shape))
        except Exception as error:
            return Failed("", said(error))

    def time(self, request: Time) -> Took:
        assert self._stopwatch is not None, "a shape is prepared before it is timed"
        return Took(self._stopwatch.times(request.calls))

    def measure(self, request: Measure) -> tuple[Arrays, list[bytes]]:
        """The outputs of a case, element by element against what is asked of them."""
        from flashverify.case.memory.host import on_cpu
        from flashverify.case.memory.materialize import materialize
        from flashverify.checks.answers import Rule, answers_of
        from flashverify.checks.passes.execution import execute

        problem, arena = materialize(parse_case(request.case), self.subject.device())
        outputs = {name: x.cpu() for name, x in execute(self.subject, problem).outputs.items()}
        answers = answers_of(self.subject, on_cpu(problem))
        entries, blobs, bounds = [], [], {}
        for name in answers.keys() & outputs.keys():
            answer, tensor = answers[name], outputs[name].contiguous()
            dtype = _DTYPES.get(str(tensor.dtype).removeprefix("torch."))
            if dtype is None or tensor.shape != answer.expected.shape:
                continue
            got, bound = tensor.double().numpy(), answer.bound.numpy()
            any_answer = answer.rule.numpy() == Rule.ANY
            asked = ~any_answer & (bound > 0) & np.isfinite(got)
            with np.errstate(all="ignore"):
                ratios = np.where(
                    asked,
                    (got - answer.expected.numpy()) / bound,
                    np.where(any_answer | np.isfinite(got), np.nan, np.inf),
                ).astype("<f4")
            if asked.any():
                bounds[name] = float(np.mean(np.log2(bound[asked])))
            bits = tensor.view(_BITS[dtype]()).numpy()
            parts = [bits.tobytes(), ratios.tobytes(), np.sign(answer.expected.numpy()).astype("i1").tobytes()]
            entries.append(OutputArrays(name, dtype, tuple(tensor.shape), *map(len, parts)))
            blobs += parts
        del arena  # the memory of the problem, alive until here
        return Arrays(tuple(entries), {name: value for name, value in bounds.items() if math.isfinite(value)}), blobs


def _bits16() -> Any:
    import torch

    return torch.int16


def _bits32() -> Any:
    import torch

    return torch.int32


_BITS = {"fp16": _bits16, "bf16": _bits16, "fp32": _bits32}


def main() -> None:
    """Answer requests until the end of input."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    guard_process()
    requests, side = open_channel(), None
    while line := requests.readline():
        request, blobs = decode_request(line), list[bytes]()
        reply: Reply
        try:
            if isinstance(request, Open):
                side = _Side(request)
                reply = side.opened()
            elif side is None:
                raise AssertionError("the first request opens the side")
            else:
                reply, blobs = _answer(side, request)
        except FlashverifyError as error:
            reply = Failed(type(error).__name__, str(error))
        except Exception as error:  # whatever the subject raises
            reply = Failed("", f"{type(error).__name__}: {str(error)[:500]}")
        _write(out, msgspec.json.encode(reply) + b"\n", *blobs)


def _answer(side: _Side, request: Request) -> tuple[Reply, list[bytes]]:
    match request:
        case ListCases():
            return side.cases(request), []
        case WhichAccepted():
            return side.accepted(request), []
        case ListFunctions():
            return side.functions(), []
        case ListShapes():
            return side.shapes(request), []
        case Prepare():
            return side.prepare(request), []
        case Time():
            return side.time(request), []
        case Measure():
            return side.measure(request)
        case Open():
            raise AssertionError("a side is opened once")


def _write(out: BinaryIO, *parts: bytes) -> None:
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[out.write(left) :]


if __name__ == "__main__":
    main()
