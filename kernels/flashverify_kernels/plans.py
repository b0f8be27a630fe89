"""Launch plans: a call like an earlier one takes its checked arguments and compiled kernels from there, and has addresses of its own.

A key holds all that checks and launches read of a call besides the contents of tensors and their addresses: shapes, strides, dtypes,
device, the address modulo 16, which tensors share an address, and the options. The plan of a key holds no tensor. A call that is not of
these, and one that somebody watches (hooks of launches, modes of torch, another `JITFunction.run`, the interpreter), goes the ordinary way. A copy of this package under another name has
no plans.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from flashverify_kernels.options import DecodeOptions, Options
from flashverify_kernels.plan_options import Tensors, tables_of, values_of
from flashverify_kernels.planned_launch import NoPlanError, Numbers, PlannedLaunch, planned_launch
from flashverify_kernels.runtime import INTERPRETED

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 512
"""Plans that are kept; the oldest makes room."""

_F = TypeVar("_F", bound=Callable[..., Any])

_ALIGNMENT = 16  # bytes
_PLAIN = (torch.Tensor, torch.nn.Parameter)
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


def planned(*, tensors: int) -> Callable[[_F], _F]:
    """A decorator of a function that computes by `launched` alone: a call takes the plan of an earlier one where there is one.

    The function returns a named tuple of new tensors, and None for those that it does not make. Its arguments are `tensors` tensors, the
    options, and by keyword `dlse`, `needs` and `dtype`.

    Args:
        tensors: how many tensors come first. A call that names one of them goes the ordinary way.
    """

    def decorate(function: _F) -> _F:
        made = inspect.get_annotations(function)["return"]
        names = frozenset(list(inspect.signature(function).parameters)[tensors:])

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if INTERPRETED or not _OWN or _off or len(args) < tensors or not names.issuperset(kwargs):
                return function(*args, **kwargs)
            if len(args) > tensors + (0 if "options" in kwargs else 1):
                return function(*args, **kwargs)  # an error
            options = args[tensors] if len(args) > tensors else kwargs.get("options")
            given = (*args[:tensors], kwargs.get("dlse"))
            others = (tuple(map(bool, kwargs.get("needs", ()))), "needs" in kwargs, kwargs.get("dtype"))
            return made(
                *_outputs(
                    function.__name__, given, options or Options(), others, functools.partial(function, *args, **kwargs)
                )
            )

        return cast("_F", call)

    return decorate


def _outputs(
    kind: str, given: Tensors, options: Options | DecodeOptions, others: tuple[Any, ...], compute: Callable[[], Tensors]
) -> Tensors:
    """What `compute` returns, or the plan of an earlier call makes of these tensors, options and other arguments."""
    if _watched():
        return compute()
    tables = tables_of(options)
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
        *values_of(options),
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
