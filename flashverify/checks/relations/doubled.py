"""Relations of a problem with the one in which V or dO is doubled: bit for bit where every rounded value is normal and stays so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.shared_kv import shares
from flashverify.checks.accuracy import judged_form
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.derived_problems import altered
from flashverify.checks.relations.ground import alike, bitwise, within
from flashverify.checks.relations.ranges import doubled_gradients, doubled_o, fits, of_rows, weights
from flashverify.checks.relations.side import sides
from flashverify.checks.relations.spec import RelationSpec
from flashverify.checks.spec import Slot
from flashverify.outputs import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.relations.ground import Ground
    from flashverify.checks.relations.side import Side
    from flashverify.judge.verdict import Verdict

__all__ = ["SPECS"]


def double_v(ground: Ground) -> Iterator[Verdict] | None:
    """V times 2 doubles O, and leaves LSE and dV as they are."""
    problem = ground.problem
    fitting = None if shares(problem.case) else _fitting(ground, ground.inputs.v)
    return None if fitting is None else _double_v(ground, altered(problem, _twice(fitting), "v"), fitting)


def _double_v(ground: Ground, problem: Problem, fitting: torch.Tensor) -> Iterator[Verdict]:
    other = ground.run(problem)
    left, right = ground.base.outputs, other.outputs
    if not ground.exact or not _rounded_once(ground):
        if _follows(left, right, fitting, twice=("o",), same=("lse", "dv")):
            return
        both = sides(ground.subject, other)
        doubled = {"o": _followed(ground.sides["o"], fitting), **_named(ground.sides, "lse", "dv")}
        yield from within("double-v", doubled, both)
        return
    judged = {"o": doubled_o(ground, weights(ground))}
    pairs = {"o": (left["o"] * 2, right["o"])}
    pairs |= {name: (left[name], right[name]) for name in ("lse", "dv") if name in left}
    yield from bitwise("double-v", pairs, _ignored(ground, judged))


def double_do(ground: Ground) -> Iterator[Verdict] | None:
    """DO and dLSE times 2 double delta and every gradient."""
    fitting = None if ground.inputs.do is None else _fitting(ground, ground.inputs.do)
    return (
        None if fitting is None else _double_do(ground, altered(ground.problem, _twice(fitting), "do", "dlse"), fitting)
    )


def _double_do(ground: Ground, problem: Problem, fitting: torch.Tensor) -> Iterator[Verdict]:
    other = ground.run(problem)
    left, right = ground.base.outputs, other.outputs
    if not ground.exact or not _rounded_once(ground):
        if _follows(left, right, fitting, twice=tuple(name for name in left if name not in ("o", "lse"))):
            return
        asked = {name: side for name, side in ground.sides.items() if name not in ("o", "lse")}
        if not bool(fitting.all()):  # an optional gradient sums over heads and batch entries
            asked = {name: side for name, side in asked.items() if not output(name).optional}
        twice = {name: _followed(side, fitting) for name, side in asked.items()}
        yield from within("double-do", twice, sides(ground.subject, other))
        return
    judged = doubled_gradients(ground, weights(ground))
    yield from bitwise("double-do", {name: (left[name] * 2, right[name]) for name in judged}, _ignored(ground, judged))


def _twice(fitting: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Times 2 in the heads that fit, bool `[B, Hkv]`; pages, which have no batch axis, are given where all fit."""
    whole = bool(fitting.all())

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2 if whole else tensor.where(~of_rows(fitting, tensor), tensor * 2)

    return change


def _follows(
    left: Mapping[str, torch.Tensor],
    right: Mapping[str, torch.Tensor],
    fitting: torch.Tensor,
    *,
    twice: tuple[str, ...],
    same: tuple[str, ...] = (),
) -> bool:
    """Whether outputs follow without any error: those of `twice` in the heads that fit, those of `same` as they are."""
    doubled = [(left[name].double() * _factor(fitting, left[name]), right[name].double(), None) for name in twice]
    return alike([*doubled, *((left[name], right[name], None) for name in same if name in left)])


def _followed(side: Side, fitting: torch.Tensor) -> Side:
    """A side times 2 in the heads that fit, and as it is elsewhere."""
    return side.times(_factor(fitting, side.value))


def _factor(fitting: torch.Tensor, like: torch.Tensor) -> torch.Tensor | float:
    """2 in the heads that fit, and 1 elsewhere."""
    return 1.0 + of_rows(fitting, like).double() if like.dim() > 1 else 2.0


def _fitting(ground: Ground, values: torch.Tensor) -> torch.Tensor | None:
    """The heads whose values may be doubled, bool `[B, Hkv]`; None where there is none, or where one may not be and heads share memory."""
    case = ground.problem.case
    found = fits(values, case.dtype, case.heads_kv)
    shared = case.storage.page_size is not None or case.storage.expand or case.grad.do == "expanded"
    usable = bool(found.all()) or (bool(found.any()) and not shared)
    return found if usable else None


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
        loads_alike=True,
        exact=True,
        run=double_do,
        sentence="dO and dLSE times 2 double delta and every gradient",
        title="{output} does not follow when dO is doubled",
    ),
)
