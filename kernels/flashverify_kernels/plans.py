"""Launch plans: a call like an earlier one takes its checked arguments and compiled kernels from there, and has addresses of its own.

A key holds all that checks and launches read of a call besides the contents of tensors and their addresses: shapes, strides, dtypes,
device, the address modulo 16, which tensors share an address, and the options. The plan of a key holds no tensor. A call that is not of
these, and one that somebody watches (hooks of launches, modes of torch, another `JITFunction.run`, the interpreter), goes the ordinary way. A copy of this package under another name has
no plans.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from flashverify_kernels.config import Configs
from flashverify_kernels.packed import Packed
from flashverify_kernels.planned_launch import NoPlanError, Numbers, PlannedLaunch, planned_launch
from flashverify_kernels.runtime import INTERPRETED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify_kernels.options import Options

LIMIT = 512
"""Plans that are kept; the oldest makes room."""

Tensors = tuple[torch.Tensor | None, ...]

_ALIGNMENT = 16  # bytes
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NONE = type(None)
_TEXTS = (_NONE, str)
_NUMBERS = (_NONE, float)
_OWN = (
    __name__.partition("_kernels.")[0] == "flashverify"
)  # in a copy under another name host code may be planted with defects
_STOCK = JITFunction.run if JITFunction.run.__qualname__ == "JITFunction.run" else None
_plans: dict[Any, _Plan] = {}
_change = threading.Lock()
_thread = threading.local()
_off = 0


class _Plan(NamedTuple):
    """The shape and dtype of each output, None for one that there is not, and the launches."""

    outputs: tuple[tuple[torch.Size, torch.dtype] | None, ...]
    launches: tuple[PlannedLaunch, ...]


@contextlib.contextmanager
def ordinary_launches() -> Iterator[None]:
    """Until the end of the block no call of the process, whatever its thread, has a plan."""
    global _off
    with _change:
        _off += 1
    try:
        yield
    finally:
        with _change:
            _off -= 1


def launched(kernel: Any, programs: int, *args: Any, **kwargs: Any) -> None:
    """Launch one program per index of axis 0, so that a plan that is being made knows of it."""
    compiled = kernel[(programs,)](*args, **kwargs)
    record = getattr(_thread, "record", None)
    if record is not None:
        record.append((kernel, compiled, programs, args, kwargs))


def planned(
    kind: str, given: Tensors, options: Options, others: tuple[Any, ...], compute: Callable[[], Tensors]
) -> Tensors:
    """What `compute` returns, by the plan of an earlier call where there is one.

    Args:
        kind: which function.
        given: its tensors.
        options: of the call.
        others: its further arguments, hashable.
        compute: the ordinary way, by `launched` alone; returns new tensors, or None for those that it does not make.

    Raises:
        TypeError: as `compute`.
        ValueError: likewise.
    """
    if INTERPRETED or not _OWN or _off or _watched():
        return compute()
    tables = _tables(options)
    if tables is None or not all(x is None or type(x) in _PLAIN for x in (*given, *tables)):
        return compute()
    tensors = [x for x in (*given, *tables) if x is not None]
    device = _device(tensors)
    if device is None:
        return compute()
    pointers = [x.data_ptr() for x in tensors]
    key = (
        kind,
        device,
        others,
        *[None if x is None else (x.dtype, x.shape, x.stride()) for x in (*given, *tables)],
        *[(p % _ALIGNMENT, pointers.index(p)) for p in pointers],
        *_values(options),
        knobs.runtime.debug,
        knobs.compilation.instrumentation_mode,
    )
    try:
        plan = _plans.get(key)
    except TypeError:  # an argument of a wrong type that has no hash
        return compute()
    if plan is None:
        return _recorded(key, pointers, compute)
    if any(each.kernel.pre_run_hooks for each in plan.launches):
        return compute()
    made = [None if x is None else torch.empty(x[0], dtype=x[1], device=tensors[0].device) for x in plan.outputs]
    tensors += [x for x in made if x is not None]
    pointers += [x.data_ptr() for x in made if x is not None]
    if any(p % _ALIGNMENT for p in pointers[len(pointers) - sum(x is not None for x in made) :]):
        return compute()
    stream = driver.active.get_current_stream(device)
    for each in plan.launches:
        arguments = each.arguments.copy()
        for n, fill in each.fills:
            arguments[n] = fill(tensors, pointers)
        compiled = each.compiled
        compiled.run(
            each.programs, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments
        )
    return tuple(made)


def _device(tensors: list[torch.Tensor]) -> int | None:
    """The number of the current device where all tensors lie on it, else None."""
    if not all(x.is_cuda and x.layout is torch.strided for x in tensors):
        return None
    device = torch.cuda.current_device()
    return device if all(x.get_device() == device for x in tensors) else None


def _watched() -> bool:
    """Whether something has to see what the ordinary way does."""
    runtime = knobs.runtime
    return (
        JITFunction.run is not _STOCK
        or bool(getattr(runtime.launch_enter_hook, "calls", runtime.launch_enter_hook))
        or bool(getattr(runtime.launch_exit_hook, "calls", runtime.launch_exit_hook))
        or getattr(runtime, "add_stages_inspection_hook", None) is not None
        or _modes() > 0
    )


def _modes() -> int:
    """How many modes of torch see the functions of this thread."""
    return torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack()


def _tables(options: Options) -> Tensors | None:
    """The tensors of the options; None where an option is of a kind, or a type, that no plan is made for."""
    packed, window = options.packed, options.window
    if (
        options.dropout is not None  # of another seed with every call
        or options.relative_bias is not None
        or options.tree is not None
        or options.bitmap is not None
        or options.blocks is not None
        or type(options.scale) not in _NUMBERS
        or type(options.softcap) not in _NUMBERS
        or type(options.causal) not in _TEXTS
        or type(options.precision) is not str
        or type(options.layout) is not str
        or type(options.config) not in (_NONE, Configs)
        or (window is not None and not (type(window) is tuple and all(type(x) in (_NONE, int) for x in window)))
        or (packed is not None and not (type(packed) is Packed and type(packed.max_q) is type(packed.max_k) is int))
    ):
        return None
    return (
        options.query_lengths,
        options.key_lengths,
        options.prefix_lengths,
        options.alibi_slopes,
        options.bias,
        options.sink,
        None if packed is None else packed.cu_q,
        None if packed is None else packed.cu_k,
    )


def _values(options: Options) -> tuple[Any, ...]:
    """The options that are no tensors; -0.0 is not 0.0, and a configuration of 64.0 is not one of 64."""
    packed, config = options.packed, options.config
    return (
        None if options.scale is None else options.scale.hex(),
        None if options.softcap is None else options.softcap.hex(),
        options.causal,
        options.window,
        options.precision,
        options.layout,
        None if packed is None else (packed.max_q, packed.max_k),
        None if config is None else repr(config),
    )


def _recorded(key: Any, pointers: list[int], compute: Callable[[], Tensors]) -> Tensors:
    """The ordinary way, and the plan of it."""
    _thread.record = record = []  # type: ignore[var-annotated]
    try:
        outputs = compute()
    finally:
        _thread.record = None
    made = [x for x in outputs if x is not None]
    new = [x.data_ptr() for x in made]
    if len({*pointers, *new}) != len({*pointers}) + len(new) or any(p % _ALIGNMENT for p in new):
        return outputs
    if not record or any(x.numel() == 0 or not x.is_contiguous() for x in made):
        return outputs
    numbers = Numbers()
    for n, pointer in enumerate((*pointers, *new)):
        numbers.setdefault(pointer, n)
    with contextlib.suppress(NoPlanError):
        plan = _Plan(
            tuple(None if x is None else (x.shape, x.dtype) for x in outputs),
            tuple(planned_launch(numbers, *each) for each in record),
        )
        if not numbers.used.issuperset(new):  # something else than a launch writes an output
            return outputs
        with _change:
            while len(_plans) >= LIMIT:
                del _plans[next(iter(_plans))]
            _plans[key] = plan
    return outputs
