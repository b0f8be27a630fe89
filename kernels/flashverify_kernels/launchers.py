"""How a compiled kernel is launched again: by the function of C that Triton's own launcher ends in, where it is a known one."""

from __future__ import annotations

import inspect
import sys
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import triton

from flashverify_kernels.plan_key import NoPlanError

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
        expanded: of a descriptor and its number among those of the kernel: what makes the first of the values that it becomes from an
            address, None where that is the address itself, and the others, which are equal for every address. None where the launcher
            takes descriptors as they are.
    """

    call: Callable[..., Any]
    before: tuple[Any, ...]
    types: tuple[Any, ...] | None = None
    single: int = 0
    expanded: Callable[[Any, int], tuple[Callable[[int], Any] | None, list[Any]]] | None = None


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

    def expanded(descriptor: Any, number: int) -> tuple[Callable[[int], Any] | None, list[Any]]:
        meta = metas[number] if metas else None
        return _map_maker(module, descriptor, meta), module.make_tensordesc_arg(descriptor, meta)[1:]

    ways = (compiled.function, run.launch_cooperative_grid, run.launch_pdl)
    if not hasattr(run, "arg_annotations"):
        return Launcher(call, (*ways, *_NO_SCRATCH, *hooks), expanded=expanded)
    one, count = module.PyKernelArg(nested_tuple=None, type=module.ARG_KERNEL), len(run.kernel_signature)
    before = (*ways, *hooks, *_NO_SCRATCH, [one] * count, run.kernel_signature)
    return Launcher(call, before, tuple(compiled.src.signature.values()), count, expanded)


def _map_maker(module: Any, descriptor: Any, meta: Any) -> Callable[[int], Any] | None:
    """What makes the driver's map of tiles for an address, as `make_tensordesc_arg` of Triton does; None where there is no map."""
    if meta is None:
        return None
    if meta["fp4_padded"] or getattr(descriptor, "round_f32_to_tf32", False):  # which no kernel here has
        raise NoPlanError
    utils = module.triton.runtime.driver.active.utils
    fill = getattr(utils, "fill_tma_descriptor_tiled", None) or utils.fill_tma_descriptor
    kind = module.TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
    tiles = meta["swizzle"], meta["elem_size"], kind, meta["block_size"]
    sizes = list(descriptor.shape), list(descriptor.strides), int(descriptor.padding == "nan")
    return lambda address: fill(address, *tiles, *sizes)


def flat(value: Any, kind: Any) -> list[Any]:
    """The values of one argument that reach the kernel, where `kind` is its type."""
    if isinstance(kind, tuple):
        return [x for each, one in zip(value, kind, strict=True) for x in flat(each, one)]
    return [] if kind == "constexpr" else [value]
