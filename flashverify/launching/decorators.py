"""The decorators around a Triton kernel, and the parameters of its function."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["autotuner_of", "computed_values", "decorated", "defaults_of", "name_of", "parameters_of", "require_kernel"]


def require_kernel(argument: str, kernel: Any) -> None:
    """Checks that something is a Triton kernel, decorated or not.

    Args:
        argument: under which the caller passed it.
        kernel: what was passed.

    Raises:
        UsageError: it is none.
    """
    from triton.runtime.jit import KernelInterface

    if not isinstance(kernel, KernelInterface):
        raise UsageError(
            f"{argument}={kernel!r} is not accepted: a function decorated with @triton.jit, under @triton.autotune and "
            "@triton.heuristics or not"
        )


def decorated(kernel: Any) -> Iterator[Any]:
    """The kernel, then what each decorator holds, down to the object that @triton.jit made."""
    yield kernel
    while not inspect.isfunction(kernel.fn):
        kernel = kernel.fn
        yield kernel


def autotuner_of(kernel: Any) -> Any:
    """The object that @triton.autotune made, outermost first; None where there is none."""
    from triton.runtime.autotuner import Autotuner

    return next((each for each in decorated(kernel) if isinstance(each, Autotuner)), None)


def computed_values(kernel: Any) -> frozenset[str]:
    """The parameters that @triton.heuristics computes."""
    from triton.runtime.autotuner import Heuristics

    return frozenset(name for each in decorated(kernel) if isinstance(each, Heuristics) for name in each.values)


def _function(kernel: Any) -> Any:
    return list(decorated(kernel))[-1].fn


def name_of(kernel: Any) -> str:
    """The name of the kernel's function."""
    return str(_function(kernel).__name__)


def parameters_of(kernel: Any) -> tuple[str, ...]:
    """The parameters of the kernel's function, in order."""
    return tuple(inspect.signature(_function(kernel)).parameters)


def defaults_of(kernel: Any) -> frozenset[str]:
    """The parameters that have a default."""
    found = inspect.signature(_function(kernel)).parameters.values()
    return frozenset(each.name for each in found if each.default is not inspect.Parameter.empty)
