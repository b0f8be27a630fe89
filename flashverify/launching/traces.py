"""Functions that `torch.compile` traces and compiles in this process: counted, or refused where a call would wait for one."""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashverify.launching.compilations import NotCompiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

__all__ = ["Traces", "traces"]

_FORWARD = "DYNAMO"
"""What torch calls the trigger of a compilation by a call; a backward is compiled behind the forward that was let through."""


@dataclass
class Traces:
    """What torch compiled since `listen` found its compiler loaded; a process has one, `traces`.

    Attributes:
        count: compilations that ended or are under way, a function and a backward that is compiled later each.
        seconds: that they took, wall clock.
        allowed: whether one more may begin; asked once before each compilation of a function.
    """

    count: int = 0
    seconds: float = 0.0
    allowed: Callable[[], bool] = field(default=lambda: True)
    _begun: float | None = None
    _granted: bool = False
    _wanted: weakref.WeakSet[CodeType] = field(default_factory=weakref.WeakSet)

    @property
    def running(self) -> bool:
        """Whether torch compiles now: what Triton's compiler is asked for meanwhile is a part of it."""
        return self._begun is not None

    def listen(self) -> None:
        """Count from now on, if torch's compiler is loaded; it is as soon as a subject was made by `torch.compile`."""
        loaded: Any = sys.modules.get("torch._dynamo.callback")
        handler = None if loaded is None else loaded.callback_handler
        if handler is not None and self._start not in handler.start_callbacks:  # `torch.compiler.reset` drops them
            handler.register_start_callback(self._start)
            handler.register_end_callback(self._end)

    @contextlib.contextmanager
    def only_where(self, allowed: Callable[[], bool]) -> Iterator[None]:
        """Until the end of the block a call that asks for a compilation raises `NotCompiled` unless it is allowed."""
        self.listen()
        before, self.allowed = self.allowed, allowed
        try:
            with self._asked_early():
                yield
        finally:
            self.allowed = before

    @contextlib.contextmanager
    def _asked_early(self) -> Iterator[None]:
        """Inside, a function that was compiled or refused before is asked about as soon as none of its code fits a call.

        Torch says at first why none does, and at last what was refused, which takes several milliseconds. It counts what it has begun.
        """
        kind: Any = getattr(sys.modules.get("torch._dynamo.convert_frame"), "CatchErrorsWrapper", None)
        if kind is None:
            yield
            return
        plain = kind.__call__

        def call(wrapper: Any, frame: Any, compiled: Any, *others: Any) -> Any:
            # Of any other function torch may find that there is nothing to compile.
            if (compiled is not None or frame.f_code in self._wanted) and not self._granted:
                self._ask()
                self._granted = True
            try:
                return plain(wrapper, frame, compiled, *others)
            except NotCompiled:
                self._wanted.add(frame.f_code)
                raise
            finally:
                self._granted = False

        kind.__call__ = call
        try:
            yield
        finally:
            kind.__call__ = plain

    def _ask(self) -> None:
        if not self.allowed():
            raise NotCompiled("a function that torch compiles")

    def _start(self, event: Any = None) -> None:
        trigger = getattr(event, "callback_trigger", None)  # earlier releases say nothing, and compile functions alone
        if getattr(trigger, "name", _FORWARD) == _FORWARD:
            granted, self._granted = self._granted, False
            if not granted:
                self._ask()
        self.count += 1
        self._begun = time.perf_counter()

    def _end(self, _: Any = None) -> None:
        """Also called where `_start` raised."""
        if self._begun is not None:
            self.seconds += time.perf_counter() - self._begun
            self._begun = None


traces = Traces()
