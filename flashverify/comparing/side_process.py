"""The process of a side, as its parent sees it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from flashverify.campaign.supervisor.process import worker_environment
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
    Prepare,
    Shapes,
    Time,
    Took,
    WhichAccepted,
    decode_reply,
)
from flashverify.errors import NoVerdictError, SubjectLoadError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.bench.records import Workload
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.comparing.functions import Code
    from flashverify.comparing.side_protocol import Reply, Request
    from flashverify.comparing.sides import Side

__all__ = ["Measured", "SideProcess", "side_process"]


class Measured(msgspec.Struct, frozen=True):
    """One output of a case.

    Attributes:
        dtype: `fp16`, `bf16` or `fp32`.
        bits: its elements as signed integers of their size.
        ratios: (got - exact) / bound, float32; NaN where nothing is asked, infinite where the value is not finite.
        signs: of the exact values.
        bound: mean of log2 of the bounds; NaN where nothing is asked.
    """

    dtype: str
    bits: Any
    ratios: Any
    signs: Any
    bound: float


class SideProcess:
    """One process of a side. Not for several threads at once.

    Raises:
        FlashverifyError: the subject cannot be loaded, or the process died.
    """

    def __init__(self, side: Side, config: CampaignConfig) -> None:
        self.side = side
        self._popen = subprocess.Popen(
            (sys.executable, "-P", "-m", "flashverify.comparing.side_main"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker_environment(config.device) | side.environment(),
            process_group=0,
        )
        reply = self._ask(Open(side.spec, config.device, config.numerics, config.toolkit, str(side.folder or "")))
        if isinstance(reply, Failed):
            self.close()
            kind = {"SubjectLoadError": SubjectLoadError, "UsageError": UsageError}.get(reply.kind, NoVerdictError)
            raise kind(reply.message if reply.kind else f"{side.text!r} cannot be loaded: {reply.message}")
        assert isinstance(reply, Opened)
        self.opened = reply

    def cases(self, *, fixed: bool, drawn: int, seed: int) -> tuple[str, ...]:
        """Cases that the subject accepts."""
        reply = self._ask(ListCases(fixed, drawn, seed))
        assert isinstance(reply, Cases), reply
        return reply.cases

    def accepted(self, cases: Sequence[str]) -> tuple[str, ...]:
        """Those of the cases that the subject accepts."""
        reply = self._ask(WhichAccepted(tuple(cases)))
        assert isinstance(reply, Accepted), reply
        return tuple(case for case, fits in zip(cases, reply.accepted, strict=True) if fits)

    def functions(self) -> dict[str, Code]:
        """The functions of the subject's own modules that are imported by now.

        Raises:
            SubjectLoadError: it imported another copy of the project.
        """
        reply = self._ask(ListFunctions())
        if isinstance(reply, Failed):
            raise SubjectLoadError(reply.message)
        assert isinstance(reply, Functions), reply
        return reply.functions

    def ask_for(self, case: str) -> None:
        """Begin to measure a case."""
        self._send(Measure(case))

    def measured(self) -> dict[str, Measured] | str:
        """The outputs of the case that was asked for, by name; text where the subject raised."""
        reply = self._receive()
        if isinstance(reply, Failed):
            return reply.message
        assert isinstance(reply, Arrays)
        found = {}
        for entry in reply.outputs:
            bits = np.frombuffer(self._read(entry.bits), "<i4" if entry.dtype == "fp32" else "<i2")
            ratios = np.frombuffer(self._read(entry.ratios), "<f4")
            signs = np.frombuffer(self._read(entry.signs), "i1")
            bound = reply.bounds.get(entry.name, float("nan"))
            shape = entry.shape
            found[entry.name] = Measured(
                entry.dtype, bits.reshape(shape), ratios.reshape(shape), signs.reshape(shape), bound
            )
        return found

    def shapes(self, among: Sequence[Workload] | None = None) -> tuple[tuple[Workload, ...], str]:
        """The shapes that the subject is timed at, or those of `among` that it takes; and what it runs on."""
        reply = self._ask(ListShapes(None if among is None else tuple(among)))
        assert isinstance(reply, Shapes), reply
        return reply.shapes, reply.evidence

    def prepare(self, shape: Workload) -> tuple[float, int | None] | str:
        """The time of one call, ms, and its memory, bytes; text where it cannot be timed."""
        reply = self._ask(Prepare(shape))
        if isinstance(reply, Failed):
            return reply.message
        assert isinstance(reply, Took), reply
        return reply.milliseconds, reply.memory

    def time(self, calls: int) -> float:
        """The median time of calls of the shape that was prepared, ms."""
        reply = self._ask(Time(calls))
        if isinstance(reply, Failed):
            raise NoVerdictError(f"{self.side.text!r} failed while it was timed: {reply.message}")
        assert isinstance(reply, Took), reply
        return reply.milliseconds

    def close(self) -> None:
        """End the process."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _ask(self, request: Request) -> Reply:
        self._send(request)
        return self._receive()

    def _send(self, request: Request) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer says what became of it
            self._popen.stdin.write(msgspec.json.encode(request) + b"\n")
            self._popen.stdin.flush()

    def _receive(self) -> Reply:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line.endswith(b"\n"):
            raise NoVerdictError(f"the process of {self.side.text!r} ended with {self._popen.wait()}")
        return decode_reply(line)

    def _read(self, size: int) -> bytes:
        assert self._popen.stdout is not None
        data = self._popen.stdout.read(size)
        if len(data) < size:
            raise NoVerdictError(f"the process of {self.side.text!r} ended with {self._popen.wait()}")
        return data


@contextlib.contextmanager
def side_process(side: Side, config: CampaignConfig) -> Iterator[SideProcess]:
    """A process of a side, ended with the block; device, numerics and toolkit are those of the campaign."""
    process = SideProcess(side, config)
    try:
        yield process
    finally:
        process.close()
