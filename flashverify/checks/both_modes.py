"""The gradients of a pass put to their bounds in both modes: end to end, and given the subject's own O and LSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.outputs import rows_reach

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.case.problem import Problem
    from flashverify.judge.compare import Comparison
    from flashverify.numerics import OutputBound
    from flashverify.truth import Truth

    Asked = tuple[str, str, torch.Tensor, OutputBound, torch.Tensor | None]
    """An output, the mode, its exact values, their bound, and elements of which nothing is asked."""

__all__ = ["CONDITIONAL", "END_TO_END", "STRICT", "compared_gradients", "finite_stored"]

END_TO_END, CONDITIONAL, STRICT = "end-to-end", "conditional", "strict"


def compared_gradients(
    truth: Truth, judge: Callable[[list[Asked]], list[Comparison]], outputs: dict[str, torch.Tensor], problem: Problem, *,
    conditional: bool, implied: bool,
) -> tuple[list[Comparison], list[Comparison]]:  # fmt: skip
    """Comparisons of the gradients under one reading of the form: end to end, and given O and the LSE where that is asked.

    With `implied` those end to end are left out where all others are right: the bounds end to end hold those given O and the LSE,
    beside what the errors of a right O and LSE add (docs/bounds.md, sections 8 to 12).
    """

    def end_to_end(pairs: Mapping[str, tuple[torch.Tensor, OutputBound]]) -> list[Asked]:
        return [(name, END_TO_END, value, bound, None) for name, (value, bound) in pairs.items() if name in outputs]

    if "lse" not in outputs or not conditional:
        return judge(end_to_end(truth.backward())), []
    o, lse, bad = finite_stored(outputs["o"], outputs["lse"], truth)
    exact, of_stored = ({}, truth.given(o, lse)) if implied else truth.in_both_modes(o, lse)
    whole = end_to_end(exact)
    lost = {} if bad is None else rows_reach(bad, problem)
    asked = [
        (name, mode, value, bound, lost.get(name))
        for mode, found in zip((CONDITIONAL, STRICT), of_stored, strict=True)
        for name, (value, bound) in found.items()
        if name in outputs
    ]
    found = judge([*whole, *asked])
    first, given = found[: len(whole)], found[len(whole) :]
    if implied and (bad is not None or not given or any(comparison.verdicts for comparison in given)):
        first = judge(end_to_end(truth.backward()))
    return first, given


def finite_stored(
    o: torch.Tensor, lse: torch.Tensor, truth: Truth
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The subject's O and LSE, in the base of its form, with rows that are not finite replaced by the oracle's, and these rows; None where there are none."""
    import torch

    bad = ~(torch.isfinite(o).all(-1) & torch.isfinite(lse)) & ~truth.empty_rows
    if not bool(bad.any()):
        return o, lse, None
    values = truth.forward()
    o = torch.where(bad.unsqueeze(-1), values["o"][0], o.double())
    return o, torch.where(bad, values["lse"][0], lse.double()), bad
