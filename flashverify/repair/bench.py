"""A failing case on which edits are tried: what they make of every element, cheaply."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import execute
from flashverify.diagnosis.observe import seen
from flashverify.interpreter.modes import launches
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.memory.arena import Arena
    from flashverify.checks.passes.execution import Execution
    from flashverify.diagnosis.observation import Scene
    from flashverify.subjects.interface import Subject

__all__ = ["Bench", "Effect", "within"]

_PATIENCE, _LEAST = 8.0, 0.5
"""How many times as long as without an edit a run may take, and seconds that it may take in any case."""
_AGAIN = 2.0
"""Seconds after which what did not end is ended again."""
_SOON = 1e-3
"""Seconds after which somebody else's alarm comes that should have come in the meantime."""


class TooLongError(BaseException):
    """An edit made a run too long; it is no Exception, so that no handler of the subject's takes it."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What an edit did to the outputs of a case.

    Attributes:
        repaired: every element is right.
        fixed: share of the wrong elements that are right now.
        broken: share of the right elements that are wrong now.
        touched: share of the wrong elements that have another value.
        aimed: how much more often elements that have another value are wrong ones than any elements are: 1 where all of them are, 0
            where they are as many as by chance.
        changed: outputs that have other values.
    """

    repaired: bool = False
    fixed: float = 0.0
    broken: float = 0.0
    touched: float = 0.0
    aimed: float = 0.0
    changed: frozenset[str] = frozenset()


class Bench:
    """A case, its problem and what the unedited subject made of it.

    Args:
        subject: the kernel under test.
        scene: its run, with failures.
        arena: the memory of the problem, to which an edit may write.

    Attributes:
        wrong: the outputs that have wrong elements.
    """

    def __init__(self, subject: Subject, scene: Scene, arena: Arena) -> None:
        self.subject, self.scene, self.wrong = subject, scene, frozenset(scene.failures)
        self._arena = arena
        begun = time.monotonic()
        self._launches = launches()
        execute(subject, scene.execution.problem, kept=self._launches)
        arena.restore()
        self._limit = max(_LEAST, _PATIENCE * (time.monotonic() - begun))

    def execution(self, *, known: bool = False) -> Execution:
        """One run of the subject as it is now.

        Args:
            known: launches of unedited kernels that would load what they loaded without an edit need not run.

        Raises:
            Exception: what the subject raises, or that it takes too long.
        """
        earlier = self._launches if known else None
        try:
            with within(self._limit):
                return execute(self.subject, self.scene.execution.problem, known=earlier, memory=False)
        finally:
            self._arena.restore()

    def effect(self) -> Effect | None:
        """What the subject, as it is now, makes of the case; None where it raises, or has other outputs."""
        scene = self.scene
        try:
            run = self.execution(known=True)
        except Exception:
            return None
        outputs = {name: x.detach().cpu().double() for name, x in run.outputs.items()}
        if {name: x.shape for name, x in outputs.items()} != {name: x.shape for name, x in scene.outputs.items()}:
            return None
        changed = {name: _differs(x, scene.outputs[name]) for name, x in outputs.items()}
        moved = frozenset(name for name, where in changed.items() if bool(where.any()))
        if not moved:
            return Effect()
        failing = self._failing(run, outputs, moved)
        return _effect(scene, failing, changed, moved)

    def _failing(self, run: Execution, outputs: dict[str, Tensor], moved: frozenset[str]) -> dict[str, Tensor]:
        """Per output what is wrong now; gradients that follow from a wrong O or LSE are all taken for wrong."""
        scene = self.scene
        forward = [name for name in FORWARD if name in scene.right]
        wrong = {name: ~scene.right[name].holds(outputs[name], scene.free.get(name)) for name in forward}
        if moved & set(forward):
            if any(bool(where.any()) for where in wrong.values()):
                rest = {name: torch.ones_like(x, dtype=torch.bool) for name, x in outputs.items() if name not in wrong}
                return wrong | rest
            found = seen(self.subject, run.problem, run, like=scene)
            return {} if found is None else dict(found.failures)
        rest = {
            name: ~x.holds(outputs[name], scene.free.get(name)) for name, x in scene.right.items() if name not in wrong
        }
        return wrong | rest


def _effect(scene: Scene, failing: dict[str, Tensor], changed: dict[str, Tensor], moved: frozenset[str]) -> Effect:
    counts = torch.zeros(6, dtype=torch.float64)
    for name in scene.right:
        nothing = torch.zeros_like(changed[name])
        before, now = scene.failures.get(name, nothing), failing.get(name, nothing)
        parts = (before, before & ~now, ~before, now & ~before, before & changed[name], changed[name])
        counts += torch.stack([part.sum() for part in parts]).double()
    wrong, fixed, right, broken, touched, moving = counts.tolist()
    share = wrong / max(wrong + right, 1.0)
    aimed = touched / max(moving, 1.0)
    return Effect(
        repaired=fixed == wrong and not broken,
        fixed=fixed / max(wrong, 1.0),
        broken=broken / max(right, 1.0),
        touched=touched / max(wrong, 1.0),
        aimed=(aimed - share) / max(1.0 - share, 0.1),
        changed=moved,
    )


def _differs(now: Tensor, before: Tensor) -> Tensor:
    return (now != before) & ~(now.isnan() & before.isnan())


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """What runs longer than this is ended, where signals can do that: in the first thread.

    Raises:
        TimeoutError: it was.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    inside = True

    def late(_number: int, _frame: Any) -> None:
        if inside:
            raise TooLongError

    callbacks = list(gc.callbacks)
    gc.callbacks.clear()  # what is raised in one of them is dropped
    handler, begun = signal.signal(signal.SIGALRM, late), time.monotonic()
    # Again, where the first one comes in a destructor, which drops it too.
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        try:
            yield
        finally:
            inside = False
    except TooLongError:
        inside = False
        raise TimeoutError from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), _SOON), again)
        gc.callbacks[:] = callbacks


def bench(subject: Subject, case: Case) -> Bench | None:
    """The bench of a case; None where it does not fail."""
    problem, arena = materialize(case, subject.device())
    run = execute(subject, problem)
    arena.restore()
    scene = seen(subject, problem, run)
    return None if scene is None or not scene.failures else Bench(subject, scene, arena)
