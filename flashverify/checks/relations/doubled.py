"""Relations of a problem with the one in which V or dO is doubled: bit for bit where every rounded value is normal and stays so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.shared_kv import shares
from flashverify.checks.accuracy import judged_form
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.derived_problems import altered
from flashverify.checks.relations.ground import bitwise, sides, within
from flashverify.checks.relations.ranges import doubled_gradients, doubled_o, fits, weights
from flashverify.checks.relations.spec import RelationSpec
from flashverify.checks.spec import Slot

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict

__all__ = ["SPECS"]


def double_v(ground: Ground) -> Iterator[Verdict] | None:
    """V times 2 doubles O, and leaves LSE and dV as they are."""
    problem = ground.problem
    if shares(problem.case) or not _fits_inside(ground.inputs.v, problem.case.dtype):
        return None
    return _double_v(ground, altered(problem, _twice, "v"))


def _double_v(ground: Ground, problem: Problem) -> Iterator[Verdict]:
    other = ground.run(problem)
    left, right = ground.base.outputs, other.outputs
    if not ground.exact or not _rounded_once(ground):
        both = sides(ground.subject, other)
        yield from within("double-v", {"o": ground.sides["o"].times(2.0), **_named(ground.sides, "lse", "dv")}, both)
        return
    judged = {"o": doubled_o(ground, weights(ground))}
    pairs = {"o": (left["o"] * 2, right["o"])}
    pairs |= {name: (left[name], right[name]) for name in ("lse", "dv") if name in left}
    yield from bitwise("double-v", pairs, _ignored(ground, judged))


def double_do(ground: Ground) -> Iterator[Verdict] | None:
    """DO and dLSE times 2 double delta and every gradient."""
    problem = ground.problem
    if problem.do is None or not _fits_inside(ground.inputs.do, problem.case.dtype):
        return None
    return _double_do(ground, altered(problem, _twice, "do", "dlse"))


def _double_do(ground: Ground, problem: Problem) -> Iterator[Verdict]:
    other = ground.run(problem)
    left, right = ground.base.outputs, other.outputs
    if not ground.exact or not _rounded_once(ground):
        twice = {name: side.times(2.0) for name, side in ground.sides.items() if name not in ("o", "lse")}
        yield from within("double-do", twice, sides(ground.subject, other))
        return
    judged = doubled_gradients(ground, weights(ground))
    yield from bitwise("double-do", {name: (left[name] * 2, right[name]) for name in judged}, _ignored(ground, judged))


def _twice(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


def _fits_inside(values: torch.Tensor | None, dtype: str) -> bool:
    return values is None or fits(values, dtype)


def _rounded_once(ground: Ground) -> bool:
    """Whether nothing but the cast of an output is rounded in 16 bits after V or dO entered."""
    form = judged_form(ground.subject, ground.problem)
    narrow = (form.partial_dtype, form.grad_accum)
    return all(x == "fp32" for x in narrow) and "input" not in (form.gqa_partial, form.dbias_partial)


def _named(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}


def _ignored(ground: Ground, judged: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The elements that are not compared: undefined ones, and those outside `judged`."""
    undefined = undefined_elements(ground.problem, ground.subject.contract)
    ignored = dict(undefined)
    for name, mask in judged.items():
        ignored[name] = ~mask | undefined[name] if name in undefined else ~mask
    return ignored


def _has_backward(case: Case) -> bool:
    return case.grad.backward


SPECS = (
    RelationSpec(
        name="double-v",
        slot=Slot.SAME_BITS,
        exact=True,
        run=double_v,
        sentence="V times 2 doubles O and leaves LSE and dV as they are",
        title="{output} does not follow when V is doubled",
    ),
    RelationSpec(
        name="double-do",
        slot=Slot.SAME_BITS,
        stands=_has_backward,
        exact=True,
        run=double_do,
        sentence="dO and dLSE times 2 double delta and every gradient",
        title="{output} does not follow when dO is doubled",
    ),
)
