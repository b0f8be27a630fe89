"""What a rank process does: it joins the process group, and runs one pass after the other on its shard."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import faulthandler
import importlib
import signal
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from flashverify.subjects.blame import traceback_text
from flashverify.subjects.ring.messages import Failed, Packed, Task, packed, stack_file, unpacked

if TYPE_CHECKING:
    import torch

__all__ = ["backward", "forward", "serve"]

_DEATH_SIGNAL = 1


def serve(fd: int, rank: int, ranks: int, store: str, backend: str, seconds: float) -> None:
    """Answers tasks until the other end of the pipe is closed.

    Args:
        fd: of the pipe to the worker.
        rank: of this process.
        ranks: number of processes.
        store: path of the file where they meet.
        backend: of `torch.distributed`, `gloo` or `nccl`; or `gloo-cuda`, where ranks share GPUs and exchange through host memory.
        seconds: how long a rank waits for another one.
    """
    import torch
    import torch.distributed as dist

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    stacks = open(stack_file(store, rank), "w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=stacks)
    pipe = Connection(fd)
    device = torch.device("cpu")
    try:
        if backend != "gloo":
            device = torch.device("cuda", rank % torch.cuda.device_count())
            torch.cuda.set_device(device)
        torch.set_num_threads(1)
        dist.init_process_group(
            backend.removesuffix("-cuda"),
            init_method=f"file://{store}",
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=seconds),
            device_id=device
            if backend == "nccl"
            else None,  # a rank without keys may have nothing to send in a first exchange
        )
    except Exception as error:
        pipe.send(_failed(error))
        return
    with contextlib.suppress(EOFError, OSError):
        while True:
            task = pipe.recv()
            try:
                answer: object = _answer(task, device)
            except Exception as error:
                pipe.send(_failed(error))
                return  # the others may wait for this rank: all of them are started anew
            pipe.send(answer)


def forward(kernels: Any, ring: Any, options: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """O and the natural LSE of the rank's rows."""
    found = kernels.ring_forward(given["q"], given["k"], given["v"], ring, options)
    return {"o": found.o, "lse": found.lse}


def backward(kernels: Any, ring: Any, options: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """The gradients of the rank's q, k and v, and delta."""
    found = kernels.RingForward(given["o"], given["lse"])
    q, k, v, do = (given[name] for name in ("q", "k", "v", "do"))
    result = kernels.ring_backward(do, q, k, v, found, ring, options, dlse=given.get("dlse"))
    return {name: getattr(result, name) for name in ("dq", "dk", "dv", "delta")}


def _answer(task: Task, device: torch.device) -> dict[str, Packed]:
    import torch

    sys.path += [folder for folder in task.path if folder not in sys.path]
    package = importlib.import_module(task.package)
    kernels = importlib.import_module(f"{task.package}.ring")
    given = {name: unpacked(x).to(device) for name, x in task.tensors.items()}
    lengths = given.pop("key_lengths", None)
    with torch.no_grad():
        options = package.Options(**task.options, key_lengths=lengths)
        found = {"forward": forward, "backward": backward}[task.function](
            kernels, kernels.Ring(**task.ring), options, given
        )
    return {name: packed(x) for name, x in found.items() if x is not None}


def _failed(error: Exception) -> Failed:
    return Failed(type(error).__name__, str(error), traceback_text(error))
