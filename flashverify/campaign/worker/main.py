"""The worker process: `python -m flashverify.campaign.worker.main` reads its configuration and carries out tasks until they end.

Its mode (interpreter or compiled) was set in its environment before it started.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import BinaryIO

import msgspec

from flashverify.campaign import environment
from flashverify.campaign.ahead import compiling_ahead
from flashverify.campaign.protocol import (
    Ready,
    WorkerConfig,
    WorkerFailed,
    decode_task,
    encode,
)
from flashverify.campaign.toolkit import load_toolkit
from flashverify.campaign.worker.collector import settle_collector
from flashverify.campaign.worker.guard import guard_process, open_channel, watch_group
from flashverify.campaign.worker.session import Session, place_of
from flashverify.errors import StoreError, UsageError

__all__ = ["main", "yield_processors"]

_YIELDS = 19
"""What a process that compiles ahead adds to its niceness: the workers that judge have the processors first."""


def main() -> int:
    """Read the configuration, then tasks until the end of input."""
    guard_process()
    watch_group()
    tasks = open_channel()
    config = msgspec.json.decode(tasks.readline(), type=WorkerConfig)
    os.set_inheritable(config.events_fd, False)
    if config.ahead:
        yield_processors()
    try:
        toolkit = load_toolkit(config.toolkit)
        with toolkit.open(config.device, plain=config.plain, numerics=config.numerics):
            settle_collector()
            session = Session(config, tasks, toolkit)
            with compiling_ahead(toolkit, config.ahead) as session.launched:
                _serve(session, tasks)
    except Exception as error:
        message = (
            str(error)
            if isinstance(error, UsageError | StoreError)
            else f"{type(error).__name__}: {error} ({place_of(error)})"
        )
        os.write(config.events_fd, encode(WorkerFailed(type(error).__name__, message)))
        traceback.print_exc()
        return 1
    return 0


def yield_processors() -> None:
    """Leave the processors to other processes: where the system has a class of those that run when nothing else would, in that class."""
    os.nice(_YIELDS)
    if hasattr(os, "SCHED_IDLE"):  # a worker that wakes never waits for the end of a turn of such a process
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _serve(session: Session, tasks: BinaryIO) -> None:
    """Carry out tasks until the end of input; tell what is known of the machine once it is."""
    known = False
    session.emit(Ready(environment.gpu()))
    while line := tasks.readline():
        session.run(decode_task(line))
        if not known and (found := environment.gpu()):
            known = True
            session.emit(Ready(found))


if __name__ == "__main__":
    sys.exit(main())
