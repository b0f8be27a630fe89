"""A call by a plan: new outputs, and the launches with the addresses of this call."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from triton.runtime import driver

from flashverify_kernels.plan_key import aligned, pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import torch

    from flashverify_kernels.planned_launch import PlannedLaunch, Taken

CALLS = 1024
"""Lists of arguments that are kept for the next call with tensors at the same addresses; the one that was not used for longest makes room."""


class Plan:
    """What follows from a key; it holds no tensor.

    Attributes:
        device: number of the device that its kernels are loaded on.
        pattern: of the addresses of the tensors that are given.
        outputs: what makes each; None for one that there is not.
        values: the part of the list of values that is equal in every call, see `planned_launch.Values`.
        steps: what makes the others of them.
        launches: in their order.
    """

    def __init__(
        self,
        device: int,
        pattern: Hashable,
        outputs: tuple[Callable[[], torch.Tensor] | None, ...],
        values: list[Any],
        steps: list[tuple[int, Taken]],
        launches: tuple[PlannedLaunch, ...],
    ) -> None:
        self.device, self.pattern, self.outputs = device, pattern, outputs
        self.values, self.steps, self.launches = values, steps, launches


def replayed(plan: Plan, device: int | None, tensors: list[torch.Tensor]) -> list[torch.Tensor | None] | None:
    """The outputs of a call that has a plan; None where it cannot take it.

    Args:
        plan: of a call with tensors of equal shapes, strides, dtypes and device.
        device: number of the current device where the tensors lie on it, else None.
        tensors: all that are given.
    """
    if device != plan.device:
        return None
    for each in plan.launches:
        if each.kernel.pre_run_hooks:
            return None
    outputs: list[torch.Tensor | None] = []
    addresses = [x.data_ptr() for x in tensors]
    for make in plan.outputs:
        if make is None:
            outputs.append(None)
        else:
            outputs.append(x := make())
            addresses.append(x.data_ptr())
    ready = calls(plan, len(tensors), driver.active.get_current_stream(device), *addresses)
    if ready is None:
        return None
    for launch, arguments in ready:
        launch(*arguments)
    return outputs


@functools.lru_cache(maxsize=CALLS)
def calls(
    plan: Plan, given: int, stream: int, *addresses: int
) -> tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] | None:
    """What the launches of a plan call, with which arguments.

    Args:
        plan: the plan.
        given: how many of the addresses are those of tensors that are given; the others are those of outputs.
        stream: that is launched on.
        addresses: of the tensors.

    Returns:
        None where the plan is one of other addresses.
    """
    if pattern(addresses[:given]) != plan.pattern or not aligned(addresses[given:]):
        return None
    values = [stream, *addresses, *plan.values]
    for n, step in plan.steps:
        values[n] = step(values)
    return tuple((each.launch, each.arguments(values)) for each in plan.launches)
