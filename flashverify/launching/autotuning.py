"""Autotuned kernels without a benchmark: the configuration of a case, or the first one that pruning leaves.

A launch with one configuration is what a user has once the autotuner has chosen. Nothing is timed, so `reset_to_zero`, `restore_value`
and the hooks of the autotuner, which put back what repeated launches did, have nothing to put back; the `pre_hook` of a configuration
comes before its launch.
"""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError
from flashverify.launching.decorators import autotuner_of, name_of, require_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Launch = tuple[tuple[str, int], ...]

__all__ = ["Choices", "choices", "configured", "first_left"]

Choices = dict["Launch", tuple[Any, Any]]
"""By launch configuration of a case: the autotuner, and its configuration."""

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_NUMBER = "config"
_STATIC_ASSERT = "_new_static_assert"
"""The function of Triton's interpreter that `tl.static_assert` becomes."""


def choices(kernels: Sequence[Any]) -> Choices:
    """Each configuration of autotuned kernels as launch values of a case.

    The values are those integers and flags of a configuration that are parameters of the kernel, and where kernels are compiled the
    options that differ (warps and stages mean nothing in the interpreter). Where two configurations have the same values, their number
    in the list is one more. Of several kernels each configuration is that of one of them, and every name begins with the kernel's.

    Args:
        kernels: decorated with @triton.autotune.

    Raises:
        UsageError: one is no autotuned kernel, or two have one name.
    """
    found: Choices = {}
    names = [_checked(kernel) for kernel in kernels]
    if len(set(names)) < len(names):
        raise UsageError(f"autotuned={names!r} is not accepted: kernels of different names")
    for kernel, name in zip(kernels, names, strict=True):
        tuner = autotuner_of(kernel)
        if len(tuner.configs) > 1:
            prefix = f"{name}_" if len(kernels) > 1 else ""
            for values, config in zip(_values(tuner.configs), tuner.configs, strict=True):
                if values:
                    launch = tuple(sorted((prefix + key, value) for key, value in values.items()))
                    found.setdefault(launch, (tuner, config))
    return found


def _checked(kernel: Any) -> str:
    require_kernel("autotuned", kernel)
    if autotuner_of(kernel) is None:
        raise UsageError(f"autotuned={name_of(kernel)} is not accepted: a kernel decorated with @triton.autotune")
    return name_of(kernel)


def _values(configs: Sequence[Any]) -> list[dict[str, int]]:
    """The launch values of each configuration; configurations of equal values are one where nothing else tells them apart."""
    import triton

    shown: list[dict[str, int]] = [
        {name: int(value) for name, value in config.kwargs.items() if isinstance(value, int)} for config in configs
    ]
    if not triton.knobs.runtime.interpret:
        for option in _OPTIONS:
            found = [getattr(config, option, None) for config in configs]
            if len(set(found)) > 1:
                shown = [
                    values | ({option: value} if isinstance(value, int) else {})
                    for values, value in zip(shown, found, strict=True)
                ]
    first: dict[Any, Any] = {}
    for number, (values, config) in enumerate(zip(shown, configs, strict=True)):
        known = first.setdefault(tuple(sorted(values.items())), config)
        if known.kwargs != config.kwargs:
            values[_NUMBER] = number
    return shown


@contextlib.contextmanager
def configured(known: Choices, launch: Launch) -> Iterator[None]:
    """Until the end of the block these autotuners time nothing: that of the case has its configuration, every other one its first.

    Args:
        known: of `choices`.
        launch: of the case.
    """
    chosen, config = known.get(launch, (None, None))
    with contextlib.ExitStack() as undo:
        for tuner in {id(tuner): tuner for tuner, _ in known.values()}.values():
            tuner.run = _bound(tuner, config if tuner is chosen else None)  # of this object, above that of its class
            undo.callback(delattr, tuner, "run")
        yield


def _bound(tuner: Any, config: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return _run(type(tuner).run, tuner, config, args, kwargs)

    return run


def first_left(run: Callable[..., Any]) -> Callable[..., Any]:
    """What `Autotuner.run` becomes where nothing can be timed: the first configuration that pruning leaves."""

    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _run(run, self, None, args, kwargs)

    run_first.one_config = run  # type: ignore[attr-defined]
    return run_first


def _run(run: Callable[..., Any], tuner: Any, wanted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A launch with `wanted`, or with the first configuration that is left where pruning or the kernel itself rules it out, or nothing is wanted."""
    run = getattr(run, "one_config", run)
    configs = tuner.configs
    if len(configs) == 1:
        return run(tuner, *args, **kwargs)
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    left = tuner.prune_configs(kwargs)
    first = next((config for config in left if wanted is not None and config == wanted), left[0])
    order = [first, *(config for config in left if config is not first)]
    try:
        for config in order:
            tuner.configs = [config]
            try:
                return run(tuner, *args, **kwargs)
            except Exception as error:
                if config is order[-1] or not _passes_over(error):
                    raise
    finally:
        tuner.configs = configs
    raise AssertionError("pruning left no configuration")


def _passes_over(error: BaseException) -> bool:
    """Whether an autotuner passes over a configuration that raises this: what it compiles fails a `tl.static_assert`, or does not fit the GPU."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    chain: BaseException | None = error
    while chain is not None:
        frames = list(traceback.walk_tb(chain.__traceback__))
        interpreted = isinstance(chain, AssertionError) and frames and frames[-1][0].f_code.co_name == _STATIC_ASSERT
        if interpreted or isinstance(chain, (CompileTimeAssertionFailure, OutOfResources, PTXASError)):
            return True
        chain = chain.__cause__ or chain.__context__
    return False
