"""Launches that compile and launch nothing: what a subject would launch on a GPU lies in Triton's cache afterwards."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.launching.pretend import pretend_cuda
from flashverify.launching.pretended_streams import pretended_streams

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Launches", "rehearsed_launches"]


@dataclass
class Launches:
    """How many launches were asked for."""

    count: int = 0


@contextlib.contextmanager
def rehearsed_launches(capability: tuple[int, int]) -> Iterator[Launches]:
    """Until the end of the block a launch of a Triton kernel compiles it for a GPU of a capability, and does no more.

    The host code of the subject runs as its users run it, over tensors of the CPU that say they lie on a GPU, and the arguments of its
    launches are classified by Triton itself. So the key of a compilation is the one that the same launch asks for on the GPU. Of an
    autotuned kernel every configuration is compiled that it would time. What is launched on a stream of its own, or captured in a CUDA
    graph, is compiled likewise.

    Args:
        capability: (major, minor) of the GPU.

    Yields:
        The number of launches, which grows.

    Raises:
        UsageError: the capability is unknown.
    """
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    found, launch, tune = Launches(), JITFunction.run, Autotuner.run
    launchers: set[str] = set()

    def compile_only(kernel: Any, *args: Any, grid: Any, **options: Any) -> Any:
        found.count += 1
        made = launch(kernel, *args, grid=grid, **(options | {"warmup": True}))
        if made is not None and made.hash not in launchers:
            launchers.add(made.hash)
            _build_launcher(made)
        return made

    def compile_each(tuner: Any, *args: Any, **options: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = tuner.prune_configs(options) if len(tuner.configs) > 1 else tuner.configs
        made, failed = [], None
        for config in configs:
            chosen = config.all_kwargs()
            try:
                if config.pre_hook is not None:
                    config.pre_hook({**tuner.nargs, **options, **chosen})
                made.append(tuner.fn.run(*args, **options, **chosen))
            except Exception as error:  # a configuration that does not compile is passed over, as the tuner does
                failed = error
        tuner.nargs = None
        if not made and failed is not None:
            raise failed
        return made[0]

    with pretend_cuda(capability), pretended_streams():
        JITFunction.run, Autotuner.run = compile_only, compile_each
        try:
            yield found
        finally:
            JITFunction.run, Autotuner.run = launch, tune


def _build_launcher(kernel: Any) -> None:
    """Builds the module of C by which Triton 3.6 launches kernels of one signature; later releases have one for all.

    Where it cannot be built, as without NVIDIA's library, the first launch on the GPU says why.
    """
    with contextlib.suppress(Exception):
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(kernel.src, kernel.metadata)
