"""Launch plans: a call like an earlier one takes its checked arguments and compiled kernels from there, and has addresses of its own.

A key holds all that checks and launches read of a call besides the contents of tensors and their addresses: shapes, strides, dtypes,
device, the address modulo 16, which tensors share an address, and the options. A call whose tensors torch finds to be like those of a
recent one needs no key of them. The plan of a key holds no tensor. A call that is not of
these, and one that somebody watches (hooks of launches, modes of torch, another `JITFunction.run`, the interpreter), goes the ordinary way.
A copy of this package under another name has no plans.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from triton import knobs
from triton.runtime.jit import JITFunction

from flashverify_kernels.options import Options
from flashverify_kernels.plan_key import NoPlanError, aligned, key_of_options, key_of_tensors, pattern
from flashverify_kernels.planned_launch import Values
from flashverify_kernels.replay import Plan, replayed
from flashverify_kernels.runtime import INTERPRETED
from flashverify_kernels.torch_shortcuts import likeness, maker

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

LIMIT = 512
"""Plans that are kept; the oldest makes room."""
_SHORT = 5
"""How many parts of a key are not of tensors."""
_RECENT = 4
"""Of calls with equal options, how many kinds of tensors are told apart without a key of them."""

_F = TypeVar("_F", bound=Callable[..., Any])
_R = TypeVar("_R", bound=tuple[torch.Tensor | None, ...])

_OWN = (
    __name__.partition("_kernels.")[0] == "flashverify"
)  # in a copy under another name host code may be planted with defects
_STOCK = JITFunction.run if JITFunction.run.__qualname__ == "JITFunction.run" else None
_plans: dict[Any, Plan] = {}
_recent: dict[Any, tuple[tuple[Callable[..., bool], Plan], ...]] = {}
_change = threading.Lock()
_thread = threading.local()
_off = 0
_DEFAULT = Options.of({})


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
        kind, made = function.__name__, inspect.get_annotations(function)["return"]
        names = frozenset(list(inspect.signature(function).parameters)[tensors:])

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if INTERPRETED or not _OWN or _off or _watched() or len(args) < tensors or not names.issuperset(kwargs):
                return function(*args, **kwargs)
            if len(args) > tensors + ("options" not in kwargs):
                return function(*args, **kwargs)  # an error
            options = args[tensors] if len(args) > tensors else kwargs.get("options")
            given = list(args[:tensors])
            try:
                short = _short(kind, options or _DEFAULT, given, _key_of_others(kwargs, given) if kwargs else None)
                plan = _recalled(short, given)
            except (NoPlanError, TypeError):  # no hash
                return function(*args, **kwargs)
            if plan is not None:
                outputs = replayed(plan, _device(given[0]), given)
                if outputs is not None:
                    return made(*outputs)
            addresses: list[int] = []
            try:
                key = (*short, key_of_tensors(given, addresses), device := _device(given[0]))
                plan = _plans.get(key)
            except (NoPlanError, RuntimeError, TypeError):  # no strides
                return function(*args, **kwargs)
            if device is None:
                return function(*args, **kwargs)
            if plan is None:
                return _recorded(key, device, addresses, functools.partial(function, *args, **kwargs))
            _remember(short, given, plan)
            outputs = replayed(plan, device, given)
            return function(*args, **kwargs) if outputs is None else made(*outputs)

        return cast("_F", call)

    return decorate


def recalled(
    kind: str, tensors: list[torch.Tensor], options: Any, others: Hashable = None
) -> list[torch.Tensor | None] | None:
    """The outputs of a call of the planned function `kind` with tensors like those of a recent call; None where only the function knows.

    Args:
        kind: name of the function.
        tensors: those that come first.
        options: its options.
        others: `others_of` its further arguments; None where there are none.
    """
    if INTERPRETED or not _OWN or _off or _watched():
        return None
    try:
        plan = _recalled(_short(kind, options, tensors, others), tensors)
    except (NoPlanError, TypeError):
        return None
    return None if plan is None else replayed(plan, _device(tensors[0]), tensors)


def _short(kind: str, options: Any, tensors: list[torch.Tensor], others: Hashable) -> tuple[Hashable, ...]:
    """The key of all but tensors; those of options are appended to `tensors`."""
    return (
        kind,
        key_of_options(options, tensors),
        others,
        knobs.runtime.debug,
        knobs.compilation.instrumentation_mode,
    )


def _recalled(short: Hashable, tensors: list[torch.Tensor]) -> Plan | None:
    """The plan of a recent call with tensors like these at other addresses."""
    for alike, plan in _recent.get(short, ()):
        if alike(*tensors):
            return plan
    return None


def _key_of_others(kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> Hashable:
    """`others_of` the arguments by keyword; the tensor among them is appended to `tensors`."""
    dlse, needs = kwargs.get("dlse"), kwargs.get("needs")
    if dlse is not None:
        tensors.append(dlse)
    return others_of(None if needs is None else tuple(map(bool, needs)), kwargs.get("dtype"), given=dlse is not None)


def others_of(needs: tuple[bool, ...] | None, dtype: torch.dtype | None = None, *, given: bool = False) -> Hashable:
    """What a key holds of `needs`, of `dtype`, and of whether there is a `dlse`."""
    return given, needs, dtype


def _remember(short: Hashable, tensors: list[torch.Tensor], plan: Plan) -> None:
    """Let the next call with these options and tensors like these find the plan without a key of them."""
    alike = likeness(tensors)
    if alike is None:
        return
    with _change:
        _recent[short] = ((alike, plan), *_recent.get(short, ())[: _RECENT - 1])


def _forget_oldest() -> None:
    key = next(iter(_plans))
    plan, short = _plans.pop(key), key[:_SHORT]
    left = tuple(each for each in _recent.pop(short, ()) if each[1] is not plan)
    if left:
        _recent[short] = left


def _device(x: torch.Tensor) -> int | None:
    """The number of the current device where `x` lies on it, else None."""
    if not x.is_cuda:
        return None
    device = torch.cuda.current_device()
    return device if x.get_device() == device else None


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


def _recorded(key: Any, device: int, addresses: list[int], compute: Callable[[], _R]) -> _R:
    """The ordinary way, and the plan of it."""
    _thread.record = record = []  # type: ignore[var-annotated]
    try:
        outputs = compute()
    finally:
        _thread.record = None
    made = [x for x in outputs if x is not None]
    new = [x.data_ptr() for x in made]
    if not aligned(new) or len({*addresses, *new}) != len({*addresses}) + len(new):
        return outputs
    if not record or any(x.numel() == 0 or not x.is_contiguous() for x in made):
        return outputs
    values = Values([*addresses, *new])
    with contextlib.suppress(NoPlanError):
        launches = tuple(values.launch(*each) for each in record)
        if not values.used.issuperset(new):  # something else than a launch writes an output
            return outputs
        makers = tuple(None if x is None else maker(x) for x in outputs)
        with _change:
            while len(_plans) >= LIMIT:
                _forget_oldest()
            _plans[key] = Plan(device, pattern(addresses), makers, values.rest, values.steps, launches)
    return outputs
