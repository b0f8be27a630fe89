"""The outputs of a pass put to the questions of `statistics`."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from flashverify.case.memory.host import on_cpu
from flashverify.checks.accuracy import judged_form
from flashverify.checks.both_modes import finite_stored
from flashverify.checks.statistics.evidence import Errors, spread, steepest_tilt
from flashverify.checks.statistics.heads import unasked_heads
from flashverify.checks.statistics.row_sums import lse_errors, lse_terms, lse_tilt
from flashverify.formats import FORMATS
from flashverify.judge.verdict import Status, Verdict
from flashverify.numerics.systematic import rounds_plainly
from flashverify.truth import Truth, inputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from flashverify.case.problem import Problem
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.known import Known
    from flashverify.checks.statistics.evidence import Tilt
    from flashverify.numerics import BoundInputs, OutputBound
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.weighted_sums import WeightedSum
    from flashverify.subjects.interface import Contract, Subject

__all__ = ["ALPHA", "GROUPS", "check_statistics", "errors_of"]

ALPHA = 1e-9
"""Probability that a right output of one case is said to drift, or to follow a tile."""
GROUPS = 50
"""Rows or keys below which nothing is asked: a score is at most the square root of their number."""
_ON_CPU = 1 << 21
"""Pairs up to which host memory is the faster place, also of a GPU's case, if nothing of its truth is known elsewhere."""
_WIDTHS = (16, 32, 64, 128)
_STANDARD_ERRORS = 8.0
_ROOM = 1 / 8
"""What the mean of `spread` may lie above 1 where it is compared with the spacing of the weights that the form says are rounded."""
_TERMS = {"o": "keys", "dq": "keys", "dk": "rows", "dv": "rows"}
"""What each output is a sum over."""


def check_statistics(base: BasePass) -> list[Verdict] | None:
    """Failing verdicts about the outputs of a pass within its bounds; None where no output could be asked."""
    import torch

    with torch.inference_mode():  # as `accuracy`, whose tensors these are
        known, problem = None if base.compared is None else base.compared.known, base.execution.problem
        left_out = _either(base.undefined, unasked_heads(problem.case), problem.q.device)
        asked_of = _asked_of(base.subject, problem, base.execution.outputs, left_out, known)
        return None if asked_of is None else _verdicts(base, asked_of)


def _either(
    first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], device: torch.device
) -> dict[str, torch.Tensor]:
    """The elements of either mask, by output."""
    there = {name: mask.to(device) for name, mask in second.items()}
    both = {name: first[name] | there[name] for name in first.keys() & there.keys()}
    return {**first, **there, **both}


def _verdicts(base: BasePass, asked_of: _Asked) -> list[Verdict] | None:
    case, form = base.case, asked_of.truth.form
    asked = list(_outputs(asked_of, base.subject.contract)) if case.dtype != "fp32" else []
    found = [verdict for output in asked for verdict in _failures(*output)]
    of_lse = _lse_failures(asked_of) if "lse" in asked_of.outputs and rounds_plainly(form) else None
    return [*found, *(of_lse or [])] if asked or of_lse is not None else None


_Output = tuple[str, str, "Errors", "WeightedSum", bool]


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """A pass that is asked: its truth with the directed one and the only chunk, the outputs, and which elements nothing is said of, all on one device."""

    truth: Truth
    directed: Truth
    chunk: Chunk
    outputs: dict[str, torch.Tensor]
    undefined: dict[str, torch.Tensor]


def errors_of(subject: Subject, problem: Problem, outputs: dict[str, torch.Tensor]) -> dict[str, Errors]:
    """Errors of O and of the gradients in groups, by name; those that nothing can be asked of are left out.

    Args:
        subject: whose form and contract say how it computes.
        problem: its inputs, with dO.
        outputs: what it returned, by name.
    """
    asked = _asked_of(subject, problem, outputs, {})
    return {} if asked is None else {name: errors for name, _, errors, _, _ in _outputs(asked, subject.contract)}


def _asked_of(
    subject: Subject,
    problem: Problem,
    outputs: dict[str, torch.Tensor],
    undefined: dict[str, torch.Tensor],
    known: Known | None = None,
) -> _Asked | None:
    """A pass as it is asked, with what is known of it; None where the roundings of its groups have to do with each other, or it is too large."""
    from flashverify.numerics.weighted_sums import only_chunk

    case = problem.case
    pairs = case.batch * case.heads_q * case.seq_q * case.seq_k
    moved: Callable[[Any], Any] = on_cpu if pairs <= _ON_CPU else _unchanged
    if known is not None and pairs > known.truth.problem.chunk_elements:
        known = None  # it was cut into chunks
    inputs, tidy = inputs_of(moved(problem)) if known is None else (known.truth.inputs, known.tidy)
    form = judged_form(subject, problem)
    if tidy.taint or form.k_smoothed or (form.prescale_fwd, form.prescale_bwd) != ("none", "none"):
        return None
    if known is not None and (chunk := only_chunk(known.truth.problem)) is not None:
        where = known.truth.inputs.q.device
        return _Asked(
            known.truth,
            known.truth.directed(),
            chunk,
            known.outputs,
            {name: mask.to(where) for name, mask in undefined.items()},
        )
    truth = Truth(inputs, case.dtype, form, finite=True)
    truth.problem = dataclasses.replace(truth.problem, chunk_elements=max(pairs, _ON_CPU))
    chunk = only_chunk(truth.problem)
    if chunk is None:
        return None
    return _Asked(
        truth,
        truth.directed(),
        chunk,
        outputs={name: moved(tensor) for name, tensor in outputs.items()},
        undefined={name: moved(mask) for name, mask in undefined.items()},
    )


def _unchanged(value: Any) -> Any:
    return value


def _outputs(asked: _Asked, contract: Contract) -> Iterator[_Output]:
    """Name, mode, errors, terms, and whether its size is asked, of every output that has enough rows or keys."""
    from flashverify.numerics.weighted_sums import gradient_sums, output_sum

    truth, directed, chunk, outputs = asked.truth, asked.directed, asked.chunk, asked.outputs
    problem = truth.problem
    out, plain = FORMATS[truth.dtype], rounds_plainly(truth.form)

    def errors(name: str, terms: WeightedSum, value: torch.Tensor, bound: OutputBound, part: OutputBound) -> Errors:
        usable = ~bound.exempt & (bound.bound > 0)
        if (undefined := asked.undefined.get(name)) is not None:
            usable = usable & ~undefined
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


def _lse_failures(asked: _Asked) -> list[Verdict] | None:
    """Failing verdicts about the LSE, fp32 in every case; None where too few rows can be asked."""
    truth = asked.truth
    terms, (_, part) = lse_terms(truth, asked.chunk), asked.directed.forward()["lse"]
    errors = lse_errors(truth, terms, asked.outputs["lse"], asked.undefined.get("lse"), part)
    if errors.groups < GROUPS:
        return None
    steepest, direction, limit = lse_tilt(errors, terms, asked.chunk, _WIDTHS, ALPHA)
    if steepest.score <= limit:
        return []
    message = (
        f"errors of lse follow {direction}, {steepest.slope:+.2g} times it on average; errors without a direction do not add up so "
        f"(score {steepest.score:.1f}, limit {limit:.1f}, {steepest.groups} rows)"
    )
    return [_failure("lse", "end-to-end", "drift", message)]


def _grouped(problem: BoundInputs, name: str, x: torch.Tensor) -> torch.Tensor:
    """An output `[B, H, S, C]` as `[G, R, C]`."""
    if name in ("o", "dq"):
        return problem.cut(x, slice(0, problem.shape.Sq))
    return x.double().reshape(-1, *x.shape[2:])


def _failures(name: str, mode: str, errors: Errors, terms: WeightedSum, sized: bool) -> Iterator[Verdict]:
    whole, tile, limit = steepest_tilt(errors, terms, _WIDTHS, ALPHA)
    if whole.score > limit:
        yield _failure(name, mode, "drift", _tilted(f"{name} is", whole, limit))
    elif tile is not None:
        yield _failure(
            name, mode, "tile", _tilted(f"the share that {_tile(name, tile)} have in {name} is", tile, limit)
        )
    if sized:
        mean, deviation, groups = spread(errors, terms.noise())
        most = 1 if terms.cast is None else 1 + _ROOM
        if mean - most > _STANDARD_ERRORS * deviation:
            message = (
                f"squared errors of {name} are {mean:.2f} times what roundings to nearest give at most, standard error {deviation:.2g} "
                f"({groups} groups; seen with {_STANDARD_ERRORS:g} standard errors above {most:g})"
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
