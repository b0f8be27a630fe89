"""Outputs that a call stores by the strides of an earlier one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.state.calling import Called

__all__ = ["stored_by_strides"]


def stored_by_strides(called: Called, expected: Expectations) -> Expectations:
    """What the later call returns whose outputs of another layout are stored by the strides of the earlier call's."""
    found = dict(expected)
    for name, each in expected.items():
        first, last = (call.execution.outputs.get(name) for call in (called.earlier, called.later))
        if first is None or last is None or first.shape != last.shape or first.stride() == last.stride():
            continue
        moved = _moved(first, last)
        if moved is not None:
            value, total, over = (x.flatten()[moved] for x in (each.value, each.total, each.overflow))
            found[name] = dataclasses.replace(each, value=value, total=total, overflow=over, strict=None, zero=None)
    return found


def _moved(first: Tensor, last: Tensor) -> Tensor | None:
    """Numbers of elements that `last` holds where they are stored by the strides of `first`; None where these leave its memory."""
    count = last.numel()
    reach = [sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)) for x in (first, last)]
    if not count or reach != [count - 1] * 2:  # both fill their memory
        return None
    memory = torch.empty(count, dtype=torch.int64)
    memory.as_strided(first.shape, first.stride()).copy_(torch.arange(count).view(first.shape))
    return memory.as_strided(last.shape, last.stride()).clone()
