"""The outputs of a pass put to the three questions of `statistics`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from flashverify.case.memory.host import on_cpu
from flashverify.checks.accuracy import finite_stored, judged_form
from flashverify.checks.statistics.evidence import Errors, spread, steepest_tilt, tilt_limit
from flashverify.formats import FORMATS
from flashverify.judge.verdict import Status, Verdict
from flashverify.numerics.systematic import rounds_plainly
from flashverify.truth import Truth, inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.statistics.evidence import Tilt
    from flashverify.numerics import BoundInputs, OutputBound
    from flashverify.numerics.weighted_sums import WeightedSum

__all__ = ["ALPHA", "GROUPS", "check_statistics"]

ALPHA = 1e-9
"""Probability that a right output of one case is said to drift, or to follow a tile."""
GROUPS = 50
"""Rows or keys below which nothing is asked: a score is at most the square root of their number."""
_WIDTHS = (16, 32, 64, 128)
_STANDARD_ERRORS = 8.0
_TERMS = {"o": "keys", "dq": "keys", "dk": "rows", "dv": "rows"}
"""What each output is a sum over."""


def check_statistics(base: BasePass) -> list[Verdict] | None:
    """Failing verdicts about the outputs of a pass within its bounds; None where no output could be asked."""
    asked = list(_outputs(base))
    return [verdict for output in asked for verdict in _failures(*output)] if asked else None


_Output = tuple[str, str, "Errors", "WeightedSum", bool]


def _outputs(base: BasePass) -> Iterator[_Output]:
    """Name, mode, errors, terms, and whether its size is asked, of every output that has enough rows or keys."""
    from flashverify.numerics.weighted_sums import gradient_sums, only_chunk, output_sum

    problem_of_case, contract = on_cpu(base.execution.problem), base.subject.contract
    outputs = {name: tensor.cpu() for name, tensor in base.execution.outputs.items()}
    inputs, tidy = inputs_of(problem_of_case)
    form = judged_form(base.subject, problem_of_case)
    if tidy.taint or form.k_smoothed or (form.prescale_fwd, form.prescale_bwd) != ("none", "none"):
        return
    truth = Truth(inputs, base.case.dtype, form)
    problem, chunk, directed = truth.problem, only_chunk(truth.problem), truth.directed()
    if chunk is None:
        return
    out, plain = FORMATS[base.case.dtype], rounds_plainly(form)

    def errors(name: str, terms: WeightedSum, value: torch.Tensor, bound: OutputBound, part: OutputBound) -> Errors:
        usable = ~bound.exempt & (bound.bound > 0)
        if (undefined := base.undefined.get(name)) is not None:
            usable = usable & ~undefined.cpu()
        of = functools.partial(_grouped, problem, name)
        looked = of(usable) * terms.various().unsqueeze(-1)
        return Errors.of(of(outputs[name]), of(value), of(part.bound) + terms.vanishing(), looked, out)

    if "o" in outputs:
        terms = output_sum(problem, chunk, truth.exact_lse)
        found = errors("o", terms, *truth.forward()["o"], directed.forward()["o"][1])
        if found.groups >= GROUPS:
            yield "o", "end-to-end", found, terms, plain
    if truth.inputs.do is None or not {"o", "lse"} <= outputs.keys() or not contract.reads_outputs:
        return
    o, lse, _ = finite_stored(outputs["o"], outputs["lse"], truth)
    values, parts = truth.conditional(o, lse), directed.conditional(o, lse)
    sums = gradient_sums(problem, chunk, o=o, lse=truth.natural(lse), do=truth.inputs.do, dlse=truth.inputs.dlse)
    for name, terms in sums.items():
        if name in outputs:
            found = errors(name, terms, *values[name], parts[name][1])
            if found.groups >= GROUPS:
                yield name, "conditional", found, terms, plain


def _grouped(problem: BoundInputs, name: str, x: torch.Tensor) -> torch.Tensor:
    """An output `[B, H, S, C]` as `[G, R, C]`."""
    if name in ("o", "dq"):
        return problem.cut(x, slice(0, problem.shape.Sq))
    return x.double().reshape(-1, *x.shape[2:])


def _failures(name: str, mode: str, errors: Errors, terms: WeightedSum, sized: bool) -> Iterator[Verdict]:
    whole, tile, tried = steepest_tilt(errors, terms, _WIDTHS)
    limit = tilt_limit(ALPHA, tried)
    if whole.score > limit:
        yield _failure(name, mode, "drift", _tilted(f"{name} is", whole, limit))
    elif tile is not None and tile.score > limit:
        yield _failure(
            name, mode, "tile", _tilted(f"the share that {_tile(name, tile)} have in {name} is", tile, limit)
        )
    if sized:
        mean, deviation, groups = spread(errors, terms.noise())
        if mean - 1 > _STANDARD_ERRORS * deviation:
            message = (
                f"squared errors of {name} are {mean:.2f} times what roundings to nearest give at most, standard error {deviation:.2g} "
                f"({groups} groups; seen with {_STANDARD_ERRORS:g} standard errors above 1)"
            )
            yield _failure(name, mode, "spread", message)


def _tile(name: str, tilt: Tilt) -> str:
    assert tilt.tile is not None
    width, number = tilt.tile
    return f"{_TERMS[name]} {width * number} to {width * (number + 1) - 1}"


def _tilted(what: str, tilt: Tilt, limit: float) -> str:
    way = "too large" if tilt.slope > 0 else "too small"
    return (
        f"{what} {way} by a factor of {abs(tilt.slope):.2g} on average; errors without a direction do not add up so "
        f"(score {tilt.score:.1f}, limit {limit:.1f}, {tilt.groups} groups)"
    )


def _failure(name: str, mode: str, error: str, message: str) -> Verdict:
    return Verdict(
        check="statistics", status=Status.FAIL, output=name, error=error, mode=mode, message=f"{message} ({mode})"
    )
