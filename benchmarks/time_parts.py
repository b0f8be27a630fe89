"""Where the processor time of drawn cases goes: by the part of the harness, and by the check that asks for it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.campaign.toolkit import Toolkit

__all__ = ["PARTS", "Clock", "drawn_time", "every_launch"]

PARTS = {
    "draws": "Hypothesis and the strategies",
    "tensors": "the tensors of a case, and of problems made from it",
    "kernels": "launches in the interpreter",
    "host": "the subject's own code around its launches, and the guards of its memory",
    "truth": "the oracle, the bounds and the comparison",
    "checks": "everything else that the checks do",
}
"""What each part is; each second belongs to the innermost one."""


class Clock:
    """Seconds of processor time by part, each without the parts inside it.

    Attributes:
        seconds: by part.
        calls: likewise.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._open: list[str] = []
        self._since = time.process_time()

    def within(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its time counted as that of the part."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._turn(part)
            self.calls[part] += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._turn(None)

        return timed

    def _turn(self, part: str | None) -> None:
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now
        if part is None:
            self._open.pop()
        else:
            self._open.append(part)


def _replace(original: Any, made: Any) -> None:
    """Put a function in place of another one in every module of the harness that has it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("flashverify"):
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, made)


def _split(clock: Clock, checks: Clock, device: str) -> None:
    """Have the parts counted by one clock, the checks by another."""
    from flashverify.case.memory.materialize import materialize
    from flashverify.checks import accuracy, engine, registry
    from flashverify.checks.passes.execution import execute

    if device == "cpu":
        from flashverify.interpreter.executor import Executor
        from flashverify.interpreter.repeats import Known

        launch: Any = Executor.__call__
        Executor.__call__ = clock.within("kernels", launch)  # type: ignore[method-assign]
        repeat = Known.repeat

        def counted(known: Known, arguments: Any) -> None:
            clock.calls["left out"] += 1
            repeat(known, arguments)

        Known.repeat = counted  # type: ignore[method-assign]
    for part, function in (("tensors", materialize), ("host", execute), ("truth", accuracy.check_accuracy)):
        _replace(function, clock.within(part, function))
    engine.CHECK_SPECS = tuple(  # type: ignore[attr-defined]
        dataclasses.replace(spec, run=checks.within(spec.name, spec.run)) for spec in registry.CHECK_SPECS
    )


@contextlib.contextmanager
def every_launch() -> Iterator[None]:
    """Have the checks `padding`, `determinism`, `relations` and `reuse` run their launches whatever they load, within the block."""
    from flashverify.checks.engine import _Judgement

    before = _Judgement._launches
    _Judgement._launches = lambda _: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        _Judgement._launches = before  # type: ignore[method-assign]


def drawn_time(toolkit: Toolkit, spec: str, device: str, cases: int, seed: int) -> tuple[Clock, Clock]:
    """Draws cases and judges them as a search does; the second half of them counts, by when what repeats is known.

    Args:
        toolkit: opened for the device.
        spec: of the subject.
        device: `cpu` or `cuda`.
        cases: that count; as many go before.
        seed: of the draws.

    Returns:
        Seconds of processor time by part, and by check, whose passes are in its time.
    """
    from flashverify.campaign.worker.search import draw

    subject = toolkit.load(spec)
    clock, checks = Clock(), Clock()
    strategy = toolkit.strategy(subject, device)
    drawn = clock.within("draws", draw)(strategy, 2 * cases, seed)
    clock.seconds["draws"] *= (len(drawn) - cases) / len(drawn)
    for case in drawn[:cases]:
        toolkit.judge(subject, case, "fuzz")
    _split(clock, checks, device)
    judged = clock.within("checks", toolkit.judge)
    for case in drawn[cases:]:
        judged(subject, case, "fuzz")
    return clock, checks
