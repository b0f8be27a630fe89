"""A process that compiles: jobs as JSON lines on stdin, outcomes as JSON lines on the first descriptor that stdout had.

It runs without TRITON_INTERPRET, for an interpreting process cannot compile.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import msgspec

from flashverify.compiling.cubin import resources
from flashverify.compiling.records import Built, Compilation, Hazard, Job
from flashverify.compiling.ttgir import find_layout_hazards
from flashverify.compiling.ttir import find_hazards
from flashverify.subjects.launches import Argument, Descriptor, Device, Element, Opaque, Pointer, Real, Record, Value

__all__ = ["compile_job"]


def compile_job(job: Job) -> Built:
    """Compile the kernel of one launch for an architecture.

    Raises:
        Exception: the kernel cannot be found or compiled.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    launch = job.launch
    fn = _named(launch.module, launch.kernel)
    while not isinstance(fn, JITFunction):  # decorators such as autotune and heuristics hold the kernel as `fn`
        fn = fn.fn
    target = GPUTarget("cuda", job.capability, 32)
    arguments = {name: _rebuild(argument) for name, argument in launch.arguments.items()}
    driver.set_active(_Driver(target))
    _, _, _, backend, bind = fn.create_binder()  # of the kernel's own class, which may have another one than Triton's
    bound, specialization, _ = bind(**arguments)
    options, signature, constants, attributes = fn._pack_args(
        backend, dict(launch.options), bound, specialization, dict(launch.options)
    )
    built = triton.compile(
        triton.compiler.ASTSource(fn, signature, constants, attributes), target=target, options=options.__dict__
    )
    used = resources(built.asm["cubin"], triton.knobs.nvidia.cuobjdump.path)
    found = find_hazards(built.asm["ttir"], deterministic=job.deterministic)
    unset = tuple(
        Hazard(
            kind="undefined-register",
            where=f"{fn.__name__}+0x{address}",
            what=f"`{text.strip()}` reads a register that nothing sets",
        )
        for address, text in used.unset
    )
    return Built(
        registers=used.registers,
        shared=built.metadata.shared,
        stack=used.stack,
        loop_spills=used.loop_spills,
        hazards=(*found, *find_layout_hazards(built.asm["ttgir"]), *job.hazards, *unset),
    )


class _Driver:
    """What a kernel asks of the driver of a GPU before it is compiled."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        """The architecture."""
        return self._target


def _rebuild(argument: Argument) -> Any:
    """A value that the compiler classifies as it did the recorded one."""
    import torch
    import triton.language as tl

    match argument:
        case Pointer(dtype, misaligned):
            element = getattr(torch, dtype)
            return torch.zeros(32, dtype=element)[misaligned // element.itemsize :]
        case Descriptor(dtype, block):
            from triton.tools.tensor_descriptor import TensorDescriptor

            return TensorDescriptor.from_tensor(torch.zeros(block, dtype=getattr(torch, dtype)), list(block))
        case Value(value):
            return value
        case Real(text):
            return float.fromhex(text)
        case Element(name):
            return tl.dtype(name)
        case Device(module, name):
            return _named(module, name)
        case Record(module, name, fields):
            values = [_rebuild(field) for field in fields]
            return _named(module, name)(*values) if module else tuple(values)
        case Opaque(text):
            raise ValueError(f"an argument cannot be rebuilt in another process: {text}")


def _named(module: str, name: str) -> Any:
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def main() -> None:
    """Compile until stdin ends."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever prints goes to stderr
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        built, error = None, ""
        try:
            built = compile_job(job)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}".strip()[:2000]
        done = Compilation(
            subject=job.subject,
            architecture=f"sm_{job.capability}",
            kernel=job.launch.kernel,
            label=job.launch.label,
            built=built,
            error=error,
        )
        out.write(msgspec.json.encode(done) + b"\n")


if __name__ == "__main__":
    main()
