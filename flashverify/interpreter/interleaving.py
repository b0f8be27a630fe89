"""Programs of a launch that take turns: another one goes on before and after a store, before an atomic operation and at a barrier."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flashverify.interpreter.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["RESIDENT", "Switching", "Turns"]

RESIDENT = 32
"""Programs that are under way at once, at most, as on a GPU that has room for so many; a program that waits for a later one hangs there too."""


class _StoppedError(BaseException):
    """Ends a program whose launch is over."""


class _Program(threading.Thread):
    """A program that runs while it has the turn."""

    def __init__(self, number: int, body: Callable[[int], None], ended: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self.number, self.over, self.stopped = number, False, False
        self.error: BaseException | None = None
        self.turn = threading.Semaphore(0)
        self._body, self._ended = body, ended

    def run(self) -> None:
        self.turn.acquire()
        try:
            if not self.stopped:
                with torch._C.DisableTorchFunction(), np.errstate(all="ignore"):
                    self._body(self.number)
        except _StoppedError:
            pass
        except BaseException as error:  # goes on in the thread of the launch
            self.error = error
        self.over = True
        self._ended.release()

    def give_up_turn(self) -> None:
        """Wait until the turn comes back."""
        self._ended.release()
        self.turn.acquire()
        if self.stopped:
            raise _StoppedError


class Turns:
    """Who goes on, drawn by a seed.

    Args:
        seed: of the draws.
        share: of the places at which another program may go on, those at which one does.
    """

    def __init__(self, seed: int, share: float = 1.0) -> None:
        self._share = share
        self._random = np.random.default_rng(seed)
        self._back = threading.Semaphore(0)
        self._running: _Program | None = None

    def run(self, programs: Sequence[int], body: Callable[[int], None], enter: Callable[[int], None]) -> None:
        """Run all programs, in turns.

        Args:
            programs: flat numbers, in the order in which they begin.
            body: runs one of them.
            enter: is called when a program gets the turn again.

        Raises:
            Exception: what the first failing program raised.
        """
        waiting = [_Program(int(number), body, self._back) for number in programs][::-1]
        resident: list[_Program] = []
        try:
            while waiting or resident:
                while waiting and len(resident) < RESIDENT:
                    resident.append(waiting.pop())
                    resident[-1].start()
                self._running = chosen = resident[int(self._random.integers(len(resident)))]
                enter(chosen.number)
                chosen.turn.release()
                self._back.acquire()
                if chosen.over:
                    resident.remove(chosen)
                    if chosen.error is not None:
                        raise chosen.error
        finally:
            self._running = None
            for program in resident:
                program.stopped = True
                program.turn.release()
                program.join()

    def switch(self) -> None:
        """Another program goes on; nothing where no turns are taken."""
        running = self._running
        if running is not None and running is threading.current_thread() and self._random.random() < self._share:
            running.give_up_turn()


class Switching(Layer):
    """The places at which programs take turns; see `Session.turns`."""

    turns: Any = None

    def create_masked_store(self, *args: Any, **options: Any) -> Any:
        """Before and after a store."""
        self._switch()
        done = super().create_masked_store(*args, **options)
        self._switch()
        return done

    def create_atomic_rmw(self, *args: Any) -> Any:
        """Before an atomic operation."""
        self._switch()
        return super().create_atomic_rmw(*args)

    def create_atomic_cas(self, *args: Any) -> Any:
        """Before a compare-and-swap."""
        self._switch()
        return super().create_atomic_cas(*args)

    def create_barrier(self) -> Any:
        """At a barrier."""
        self._switch()
        return super().create_barrier()

    def _switch(self) -> None:
        if self.turns is not None:
            self.turns.switch()
