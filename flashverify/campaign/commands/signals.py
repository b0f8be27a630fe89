"""Signals that end a command after a flush: Ctrl-C, a request to end, a terminal that hung up."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["ending_signals"]


@contextmanager
def ending_signals(stop: Callable[[int], None]) -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP calls `stop` with the exit code; the second ends the process, and its workers with it.

    Under `nohup`, where SIGHUP is ignored, it stays so.
    """
    seen = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        if seen:
            os._exit(128 + number)
        seen = True
        stop(128 + number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
