"""`pretend_cuda`: the host code around a kernel believes in a GPU, on a machine without one."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from flashverify.launching.gpus import require_capability

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["pretend_cuda"]

_taken = threading.RLock()


@contextlib.contextmanager
def pretend_cuda(capability: tuple[int, int] = (9, 0)) -> Iterator[None]:
    """Until the end of the block, host code that asks for a GPU gets one, while every tensor stays in the memory of the CPU.

        with flashverify.pretend_cuda((9, 0)):
            from my_package.attention import attention  # asks for the device while it is imported

        @flashverify.subject(pretend_cuda=(9, 0))
        def mine(p):
            return attention(p.q, p.k, p.v, p.scale)  # asserts q.is_cuda, allocates on 'cuda'

    Kernels are launched in the interpreter, so the process must interpret. Inside the block:

    - `device='cuda'`, `.to('cuda')` and `.cuda()` give tensors of the CPU, and `x.is_cuda`, `x.device` and `x.get_device()` of each tensor
      of the CPU say that it lies on device 0.
    - `torch.cuda.is_available`, `device_count`, `current_device`, `device`, `get_device_capability`, `get_device_properties`,
      `get_device_name`, `current_stream`, `stream`, `synchronize` and others answer for a GPU of the capability; `triton.runtime.driver.active`
      does too, and `torch.version.cuda` names a release.
    - `torch.cuda.Event` and `torch.cuda.CUDAGraph` raise an error: there is nothing to time and nothing to capture.

    A tensor that the code left on the CPU by mistake says that it is on the GPU. Everything is put back at the end of the block. Only the
    thread that entered it is told of a GPU; a second thread waits. Blocks may be nested. Where torch has a GPU the block changes nothing.

    Args:
        capability: (major, minor) of the GPU, one of (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0) and (12, 0).

    Yields:
        Nothing.

    Raises:
        UsageError: the capability is unknown.
    """
    require_capability("capability", capability)
    import torch

    with _taken:
        from flashverify.launching.pretended_torch import answering

        if torch.cuda.is_available() and not answering():
            yield
            return
        from flashverify.launching.pretended_torch import pretended_torch
        from flashverify.launching.pretended_triton import pretended_driver

        with pretended_torch(capability), pretended_driver(capability):
            yield
