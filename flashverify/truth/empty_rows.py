"""What the convention that an empty row's LSE is the sink changes of values and bounds."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashverify.numerics import OutputBound
    from flashverify.truth.values import Truth

__all__ = ["dlse_of_empty_rows", "with_dlse_of_empty_rows", "with_sink_as_lse"]


def with_sink_as_lse(truth: Truth, lse: torch.Tensor, bound: OutputBound) -> tuple[torch.Tensor, OutputBound]:
    """The LSE and its bound with the sink in rows that see no key, in the base of the form."""
    import torch

    from flashverify.numerics.empty_rows import lse_error

    assert truth.inputs.sink is not None
    empty, unit = truth.empty_rows, 1.0 if truth.form.lse_base == "e" else 1.0 / math.log(2.0)
    error, own = (x.view(1, -1, 1) for x in lse_error(truth.problem))
    found = torch.where(empty, truth.inputs.sink.double().view(1, -1, 1) * unit, lse)
    changed = {"bound": torch.where(empty, error, bound.bound), "self_error": torch.where(empty, own, bound.self_error)}
    return found, dataclasses.replace(bound, **changed)


def dlse_of_empty_rows(truth: Truth) -> torch.Tensor:
    """`[B, Hq, Sq]` float64: dLSE of rows that see no key, 0 elsewhere. Each adds it to the gradient of its sink, whose weight is 1."""
    import torch

    assert truth.inputs.dlse is not None
    return torch.where(truth.empty_rows, truth.inputs.dlse.double(), 0.0)


def with_dlse_of_empty_rows(
    truth: Truth, dsink: torch.Tensor, bound: OutputBound, *, conditional: bool
) -> tuple[torch.Tensor, OutputBound]:
    """The gradient of the sink and its bound with what rows that see no key add to it."""
    from flashverify.numerics.empty_rows import dsink_error

    dlse = dlse_of_empty_rows(truth)
    more = dsink_error(truth.problem, dlse, conditional=conditional)
    return dsink + dlse.sum((0, 2)), dataclasses.replace(bound, bound=bound.bound + more)
