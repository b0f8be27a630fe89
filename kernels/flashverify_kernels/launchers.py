"""How a compiled kernel is launched again: by the function of C that Triton's own launcher ends in, where it is a known one."""

from __future__ import annotations

import inspect
import sys
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import triton

if TYPE_CHECKING:
    from collections.abc import Callable

_KNOWN = ("3.6.", "3.7.")
"""Releases of Triton whose function of C is known."""
_NO_HOOKS = (None, None, None)
"""What a launch is called, and the hooks before and after it."""
_NO_SCRATCH = (None, None)


class Place(int):
    """An address where Triton asks a tensor for its own."""

    def data_ptr(self) -> int:
        """The address."""
        return int(self)


class Launcher(NamedTuple):
    """A function that launches a compiled kernel.

    Attributes:
        call: takes the grid, the stream and `before`, and then the arguments of the kernel.
        before: what it takes between the stream and the arguments of the kernel.
        types: where the arguments are to be one tuple without records and constants, the type of each as Triton writes it, a tuple for a
            record; None where they follow each other as they are.
        single: how many the tuple holds then.
        expanded: what a descriptor becomes; None where the launcher takes it as it is.
    """

    call: Callable[..., Any]
    before: tuple[Any, ...]
    types: tuple[Any, ...] | None = None
    single: int = 0
    expanded: Callable[[Any, int], list[Any]] | None = None


def launcher_of(compiled: Any) -> Launcher:
    """The launcher of a kernel that was launched; Triton's own one in Python where what it ends in is not known."""
    run, hooks = compiled.run, (compiled.packed_metadata, *_NO_HOOKS)
    python = Launcher(run, (compiled.function, *hooks))
    module: Any = sys.modules[type(run).__module__]
    if not triton.__version__.startswith(_KNOWN) or type(run) is not getattr(module, "CudaLauncher", None):
        return python
    if run.global_scratch_size or run.profile_scratch_size:  # which Python allocates for each launch
        return python
    call, metas = run.launch, getattr(compiled.metadata, "tensordesc_meta", None)
    if inspect.isfunction(call):  # which makes descriptors of the arguments first
        call = inspect.getclosurevars(call).nonlocals.get("launcher")
    if not isinstance(call, BuiltinFunctionType):
        return python

    def expanded(descriptor: Any, number: int) -> list[Any]:
        found: list[Any] = module.make_tensordesc_arg(descriptor, metas[number] if metas else None)
        return found

    ways = (compiled.function, run.launch_cooperative_grid, run.launch_pdl)
    if not hasattr(run, "arg_annotations"):
        return Launcher(call, (*ways, *_NO_SCRATCH, *hooks), expanded=expanded)
    one, count = module.PyKernelArg(nested_tuple=None, type=module.ARG_KERNEL), len(run.kernel_signature)
    before = (*ways, *hooks, *_NO_SCRATCH, [one] * count, run.kernel_signature)
    return Launcher(call, before, tuple(compiled.src.signature.values()), count, expanded)


def flat(value: Any, kind: Any) -> list[Any]:
    """The values of one argument that reach the kernel, where `kind` is its type."""
    if isinstance(kind, tuple):
        return [x for each, one in zip(value, kind, strict=True) for x in flat(each, one)]
    return [] if kind == "constexpr" else [value]
