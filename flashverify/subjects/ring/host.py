"""The process that ranks are forked from: `python -m flashverify.subjects.ring.host SOCKET SETTINGS`.

It imports torch and the kernels once, so that a rank starts in milliseconds. It never touches a GPU, because a process that does cannot be
forked. It ends when the other end of its socket is closed, and its ranks are killed with it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

__all__ = ["main"]

_MOST = 64


def main(fd: int, settings: dict[str, str]) -> None:
    """Forks as many ranks as each message asks for, one for every socket that comes with it; answers with their process ids.

    Args:
        fd: of the socket to the worker.
        settings: `numerics` of an interpreter that the ranks run in; empty where kernels are compiled.
    """
    import torch  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ranks that have ended leave nothing behind
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted worker closes the socket
    warm: set[str] = set()
    control = socket.socket(fileno=fd)
    with _interpreter(settings["numerics"]):
        while True:
            message, sockets, *_ = socket.recv_fds(control, 4096, _MOST)
            if not message:
                return
            order = json.loads(message)
            if settings["numerics"] and order["package"] not in warm:
                warm.add(order["package"])
                _warm_up(order["package"])
            pids = []
            for rank, own in enumerate(sockets):
                pid = os.fork()
                if pid == 0:
                    _become_rank(control, rank, own, sockets, order)
                pids.append(pid)
            for own in sockets:
                os.close(own)
            control.sendall(json.dumps(pids).encode() + b"\n")


def _warm_up(package: str) -> None:
    """Lets the interpreter meet the kernels once, so that not every rank has to; what is wrong with them is found in the ranks."""
    import torch

    with contextlib.suppress(Exception), torch.no_grad():
        kernels = importlib.import_module(package)
        x, options = torch.zeros(1, 1, 16, 16), kernels.Options(window=(4, 4))
        found = kernels.forward(x, x, x, options, dtype=torch.float32)
        kernels.backward(x, x, x, x, found.o, found.lse2, options, dtype=torch.float32)
        kernels.merge(torch.stack([found.o, found.o]), torch.stack([found.lse2, found.lse2]))


def _become_rank(control: socket.socket, rank: int, own: int, sockets: list[int], order: dict[str, Any]) -> None:
    from flashverify.subjects.ring.rank import serve

    try:
        control.close()
        for other in sockets:
            if other != own:
                os.close(other)
        serve(own, rank, len(sockets), order["store"], order["backend"], order["seconds"])
    finally:
        os._exit(0)


def _interpreter(numerics: str) -> contextlib.AbstractContextManager[object]:
    if not numerics:
        return contextlib.nullcontext()
    from flashverify.interpreter import faithful
    from flashverify.interpreter.hardware import mode

    return faithful(*mode(numerics).layers)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
