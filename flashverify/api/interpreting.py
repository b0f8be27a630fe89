"""The corrected interpreter for a test suite or one call, and the refusal of bf16 outputs that Triton's own interpreter made."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.subjects.interface import Subject

__all__ = ["corrected_interpreter", "interpretable", "interpreted_for", "refuse_stock_bf16", "unlaunched"]

_ADVICE = (
    "set TRITON_INTERPRET=1 before triton is first imported (in the environment, or at the top of conftest.py) and run kernels inside "
    "`with flashverify.corrected_interpreter():`"
)
_NOT_LAUNCHED = ("active drivers", "cannot be accessed from Triton")
"""What compiled Triton says of a launch without a GPU, and of one with tensors in host memory."""


@dataclass(slots=True)
class _Launches:
    """What is known of the launches of this process.

    Attributes:
        before: the last one of Triton's own interpreter when the open corrected interpreter was opened.
        first: launches of that one then, its self-test's.
        settled: the last one of Triton's own interpreter that launches of a corrected one have followed.
    """

    before: Any = None
    first: int = 0
    settled: Any = None


_launches = _Launches()


@contextlib.contextmanager
def corrected_interpreter(*, numerics: str = "ieee", lockstep: bool = True) -> Iterator[None]:
    """Makes Triton's CPU interpreter compute as compiled kernels do, until the end of the block.

    Triton's own interpreter has bf16 wrong, and treats NaN, overflow and tf32 otherwise than a GPU. As a fixture of a suite:

        # conftest.py
        import os

        os.environ["TRITON_INTERPRET"] = "1"

        import flashverify
        import pytest


        @pytest.fixture(scope="session", autouse=True)
        def corrected():
            with flashverify.corrected_interpreter():
                yield

    It changes Triton for the whole process and puts everything back at the end. It cannot be nested, and nothing may be compiled for a GPU
    while it is open. Lanes of a load or store that lie outside every tensor are masked off.

    Args:
        numerics: `ieee`, or what a GPU's tensor cores do to a dot: `h100`, `a100`, each also with `+2ulp`, `-2ulp` or `+0ulp` at its end.
        lockstep: run all programs of a launch at once where that is known to be right; False is slower, and the results are the same
            unless programs race.

    Yields:
        Nothing.

    Raises:
        UsageError: this process compiles kernels, its Triton is not supported, the numerics are unknown, or an interpreter is open already.
        SelfCheckError: the corrected interpreter failed its self-test.
    """
    if not _may_interpret():
        raise UsageError(f"the interpreter is off in this process: {_ADVICE}")
    from flashverify.campaign.toolkit import bundled

    before = _stock_launch()
    with bundled.open("cpu", plain=not lockstep, numerics=numerics):
        session = _session()
        _launches.before, _launches.first = before, session.launches
        try:
            yield
        finally:
            if session.launches > _launches.first:
                _launches.settled = before


def refuse_stock_bf16(q: torch.Tensor, not_interpreted: bool) -> None:
    """Refuses bf16 tensors in host memory where Triton's own interpreter may have computed the outputs.

    It may where it has launched a kernel, and no corrected interpreter has launched one afterwards. A process that only imported triton,
    compiled or not, is not refused.

    Args:
        q: an input.
        not_interpreted: the caller knows better.

    Raises:
        UsageError: the outputs cannot be trusted.
    """
    if not_interpreted or str(q.dtype) != "torch.bfloat16" or q.device.type != "cpu":
        return
    session = _session()
    if session is not None and session.launches > _launches.first:
        return
    launch = _stock_launch() if session is None else _launches.before
    if launch is not None and launch is not _launches.settled:
        raise UsageError(
            "bf16 outputs are not accepted after a launch in Triton's own interpreter, which has bf16 wrong: a right kernel would fail. "
            f"For outputs of that launch {_ADVICE}; for outputs of anything else pass not_interpreted=True"
        )


@contextlib.contextmanager
def interpreted_for(subject: Subject) -> Iterator[None]:
    """What a subject needs to be judged in this process: the corrected interpreter where kernels are interpreted and none is open.

    Raises:
        UsageError: the subject needs a GPU, and there is none.
    """
    from flashverify.subjects.registry import has_gpu

    if subject.device() == "cuda" and not has_gpu():
        raise UsageError(
            f"subject {subject.name!r} is not accepted on this machine without an NVIDIA GPU; to interpret its kernels {_ADVICE}"
        )
    if subject.device() != "cpu" or not interpretable():
        yield
        return
    with corrected_interpreter():
        yield


def unlaunched(subject: Subject, message: str) -> str | None:
    """Why an exception of a subject says nothing about its kernels: compiled Triton was given tensors in host memory. None where it does.

    Args:
        subject: the kernel under test.
        message: of the exception.
    """
    compiled = subject.device() == "cpu" and "triton" in sys.modules and not _may_interpret()
    if not compiled or not any(text in message for text in _NOT_LAUNCHED):
        return None
    return f"subject {subject.name!r} launches Triton kernels on the CPU, but this process compiles them ({message}): {_ADVICE}"


def interpretable() -> bool:
    """Whether kernels of this process are interpreted and the corrected interpreter is not open."""
    return _session() is None and _may_interpret()


def _may_interpret() -> bool:
    """Whether kernels of this process are interpreted, or will be once triton is imported; imports nothing."""
    if "triton" not in sys.modules:
        return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "y", "yes", "t", "true", "on")
    from flashverify.interpreter.hooks import interpreting

    return interpreting()


def _session() -> Any:
    """The open session of the corrected interpreter, or None."""
    loaded = sys.modules.get("flashverify.interpreter.session")
    return None if loaded is None else loaded.active()


def _stock_launch() -> Any:
    """The grid of the last launch of Triton's own interpreter, a new object for each; None where there was none.

    Every launch sets it on the one builder of the process; a corrected interpreter puts the builder's attributes back when it is closed.
    """
    loaded = sys.modules.get("triton.runtime.interpreter")
    found = vars(getattr(loaded, "interpreter_builder", object)).get("grid_dim")
    return found if isinstance(found, tuple) else None
