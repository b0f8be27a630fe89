"""How far attention over codes lies from attention over the values that were quantised: a property of the cache, of no kernel."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.judge.quantisation import QuantisationError
from flashverify.truth import float64_values, inputs_of

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

__all__ = ["quantisation_errors"]


def quantisation_errors(problem: Problem) -> tuple[QuantisationError, ...]:
    """Of O and of the natural LSE, by the float64 oracle; nothing of a problem whose k and v are no codes.

    Elements that a code or a value reaches which is no finite number are left out.
    """
    case = problem.case
    if case.quantised is None:
        return ()
    names = ("k_codes", "v_codes", "k_scale", "v_scale", "k_zero", "v_zero", "q_codes", "q_scale")
    values = dataclasses.replace(
        problem,
        case=dataclasses.replace(case, quantised=None),
        **dict.fromkeys(names),  # type: ignore[arg-type]
    )
    ends = []
    for given in (problem, values):
        inputs, tidy = inputs_of(given)
        ends.append((float64_values(dataclasses.replace(inputs, do=None, dlse=None)), tidy.taint))
    (coded, lost), (exact, gone) = ends
    return tuple(
        _error(name, coded[name], exact[name], [t[name] for t in (lost, gone) if name in t]) for name in ("o", "lse")
    )


def _error(name: str, coded: torch.Tensor, exact: torch.Tensor, left_out: list[torch.Tensor]) -> QuantisationError:
    import torch

    kept = torch.isfinite(exact) & torch.isfinite(coded)
    for mask in left_out:
        kept = kept & ~mask
    difference, size = (coded - exact)[kept], exact[kept]
    if not difference.numel():
        return QuantisationError(output=name)
    return QuantisationError(
        output=name,
        largest=float(difference.abs().max()).hex(),
        rms=float(difference.square().mean().sqrt()).hex(),
        size=float(size.square().mean().sqrt()).hex(),
    )
