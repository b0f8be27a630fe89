"""torch of a machine with one GPU: the functions of `torch.cuda`, under which tensors of the CPU are taken for the GPU's."""

from __future__ import annotations

import contextlib
import functools
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.errors import UsageError
from flashverify.launching.gpus import GPUS
from flashverify.launching.pretended_tensors import DEVICE, CudaTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PretendedStream", "answering", "pretended_torch"]

_ENGINE = "_engine_run_backward"
"""The function of `torch.autograd` that both `grad` and `backward` end in."""
_TOOLKIT = "12.8"
"""The release of CUDA that torch says it was built with."""
_depth = 0


def answering() -> bool:
    """Whether `torch.cuda` answers for a GPU that is pretended."""
    return _depth > 0


class PretendedStream:
    """The default stream, in which everything is done at once."""

    cuda_stream = 0
    device = DEVICE
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever a stream is made with."""

    def synchronize(self, *_: Any) -> None:
        """Nothing to wait for."""

    wait_stream = synchronize
    wait_event = synchronize

    def query(self) -> bool:
        """Everything is done."""
        return True


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UsageError(
            f"torch.cuda.{name} is not accepted inside pretend_cuda: no GPU is there to time or to capture"
        )

    return refuse


def _nothing(*_: Any, **__: Any) -> None:
    """What has no effect on a GPU that is not there."""


def _block(*_: Any, **__: Any) -> Any:
    return contextlib.nullcontext()


def _properties(capability: tuple[int, int]) -> SimpleNamespace:
    gpu = GPUS[capability]
    return SimpleNamespace(
        name=gpu.name,
        major=capability[0],
        minor=capability[1],
        total_memory=gpu.memory,
        multi_processor_count=gpu.processors,
        warp_size=32,
        max_threads_per_multi_processor=gpu.threads,
        max_threads_per_block=1024,
        regs_per_multiprocessor=1 << 16,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=gpu.shared,
        shared_memory_per_multiprocessor=gpu.shared + (1 << 10),
        L2_cache_size=gpu.cache,
        is_integrated=0,
        is_multi_gpu_board=0,
    )


def _answers(capability: tuple[int, int]) -> dict[str, Callable[..., Any]]:
    """What functions of `torch.cuda` become."""
    gpu, properties, stream = GPUS[capability], _properties(capability), PretendedStream()
    fixed: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": capability,
        "get_device_properties": properties,
        "get_device_name": gpu.name,
        "get_arch_list": [f"sm_{capability[0]}{capability[1]}"],
        "is_bf16_supported": capability >= (8, 0),
        "is_current_stream_capturing": False,
        "current_stream": stream,
        "default_stream": stream,
        "mem_get_info": (gpu.memory, gpu.memory),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
    }
    answers: dict[str, Callable[..., Any]] = {
        name: functools.partial(_constant, value) for name, value in fixed.items()
    }
    answers |= dict.fromkeys(("synchronize", "set_device", "empty_cache", "init", "reset_peak_memory_stats"), _nothing)
    answers |= dict.fromkeys(("device", "device_of", "stream"), _block)
    answers |= {name: _refused(name) for name in ("Event", "CUDAGraph", "graph")}
    answers["get_rng_state"] = lambda *_: torch.get_rng_state()
    answers["set_rng_state"] = lambda state, *_: torch.set_rng_state(state)
    return answers


def _constant(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _for_thread(before: Any, answer: Callable[..., Any]) -> Callable[..., Any]:
    """`answer` in this thread, and what there was before in every other one."""
    owner = threading.get_ident()

    def call(*args: Any, **kwargs: Any) -> Any:
        return (answer if threading.get_ident() == owner else before)(*args, **kwargs)

    return call


@contextlib.contextmanager
def pretended_torch(capability: tuple[int, int]) -> Iterator[None]:
    """Until the end of the block torch answers for one GPU of a capability, in this thread.

    Args:
        capability: (major, minor).
    """
    global _depth
    mode = CudaTensors()
    replaced = [(torch.cuda, name, answer) for name, answer in _answers(capability).items()]
    replaced += [
        (torch.accelerator, "is_available", functools.partial(_constant, True)),
        (torch.accelerator, "current_accelerator", functools.partial(_constant, torch.device("cuda"))),
        (torch.accelerator, "current_device_index", functools.partial(_constant, 0)),
        (torch.accelerator, "synchronize", _nothing),
        (torch.autograd, _ENGINE, _under(mode, getattr(torch.autograd, _ENGINE, None))),
    ]
    with contextlib.ExitStack() as undo:
        for owner, name, answer in replaced:
            if hasattr(owner, name):
                before = getattr(owner, name)
                undo.callback(setattr, owner, name, before)
                setattr(owner, name, _for_thread(before, answer))
        undo.callback(setattr, torch.version, "cuda", torch.version.cuda)
        torch.version.cuda = _TOOLKIT
        _depth += 1
        try:
            with mode:
                yield
        finally:
            _depth -= 1


def _under(mode: CudaTensors, engine: Any) -> Callable[..., Any]:
    """Autograd's engine, which runs the backward of the caller's functions, with the mode that torch leaves to call it."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return engine(*args, **kwargs)

    return run
