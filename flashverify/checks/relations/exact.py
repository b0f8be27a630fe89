"""Relations that hold bit for bit, one launch pinned on both sides; within both bounds where the subject promises no bits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import Mask
from flashverify.case.modifiers.logits import modifiers_of
from flashverify.checks.accuracy import judged_form, undefined_elements
from flashverify.checks.derived_problems import altered, dense_case, pinned, relaunched
from flashverify.checks.relations.ground import bitwise, sides, within
from flashverify.checks.relations.ranges import doubled_gradients, doubled_o, fits, weights
from flashverify.outputs import output
from flashverify.truth import inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.execution import Execution
    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict
    from flashverify.numerics import Form

__all__ = ["appended_keys", "chain_tree", "double_do", "double_v"]

_APPENDED = 37
"""Keys beyond the declared length: neither a tile nor a fraction of one."""
_LARGE_V = 3.0


def double_v(ground: Ground) -> Iterator[Verdict] | None:
    """V times 2 doubles O, and leaves LSE and dV as they are."""
    problem = ground.problem
    if not _fits_inside(ground.inputs.v, problem.case.dtype):
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


def appended_keys(ground: Ground) -> Iterator[Verdict] | None:
    """Keys appended behind the declared length change nothing, whatever they hold."""
    case, mask = ground.problem.case, ground.problem.case.mask
    fixed = case.dropout or case.storage.page_size is not None or mask.tree is not None or mask.blocks is not None
    if fixed or case.seq_k == 0:
        return None
    lengths = None if mask.packed is not None else mask.key_lengths or (case.seq_k,) * case.batch
    longer = dense_case(
        case, seq_k=case.seq_k + _APPENDED, mask=dataclasses.replace(mask, key_lengths=lengths), launch=()
    )
    return _same(ground, "appended-keys", _appended(ground.problem, longer), _hidden(ground, longer))


def _hidden(ground: Ground, longer: Case) -> Any:
    """The mask of the base with the appended keys hidden, where the case would draw another bitmap; None where it says the same."""
    import torch

    if longer.mask.bitmap is None:
        return None
    case = ground.problem.case
    seen = ground.inputs.visible(slice(0, case.seq_q), slice(0, case.seq_k))
    return torch.cat([seen, seen.new_zeros(*seen.shape[:3], _APPENDED)], -1)


def _appended(problem: Problem, longer: Case) -> Problem:
    import torch

    case, device = problem.case, problem.q.device

    def grown(tensor: torch.Tensor | None, axis: int, value: float) -> torch.Tensor | None:
        if tensor is None:
            return None
        shape = list(tensor.shape)
        shape[axis] = _APPENDED
        return torch.cat([tensor, tensor.new_full(shape, value)], axis)

    lengths = problem.key_lengths
    if lengths is None and longer.mask.key_lengths is not None:
        lengths = torch.full((case.batch,), case.seq_k, dtype=torch.int32, device=device)
    # The keys are the first ones again, so that a leaked one has a weight that counts.
    k = torch.cat([problem.k] + [problem.k[:, :, :1]] * _APPENDED, 2)
    v = grown(problem.v, 2, _LARGE_V)
    assert v is not None
    return dataclasses.replace(
        problem,
        case=longer,
        k=k,
        v=v,
        key_lengths=lengths,
        bitmap=grown(problem.bitmap, 3, True),
        bias=grown(problem.bias, 3, _LARGE_V),
    )


def chain_tree(ground: Ground) -> Iterator[Verdict] | None:
    """Causal, aligned at the last key, is the tree in which every node's parent is the node before it."""
    case, mask = ground.problem.case, ground.problem.case.mask
    packed = mask.packed
    lengths = ((case.seq_q, case.seq_k),) if packed is None else packed.lengths()
    square = all(rows == keys for rows, keys in lengths)
    distances = any(modifier.follows == "distance" for modifier in modifiers_of(case))
    if mask.causal is None or not mask.parts() <= {"causal", "packed"} or distances:
        return None
    if any(keys < rows for rows, keys in lengths) or not (square or mask.causal == "bottom-right"):
        return None
    chain = tuple(node - 1 for rows, _ in lengths for node in range(rows))
    tree = dataclasses.replace(case, mask=Mask(tree=chain, packed=packed), launch=())
    return _same(ground, "chain-tree", dataclasses.replace(ground.problem, case=tree), None)


def _same(ground: Ground, name: str, problem: Problem, visible: Any) -> Iterator[Verdict] | None:
    """Whether a problem has the outputs of the base in its first keys, under one launch where there is one for both."""
    subject, case = ground.subject, ground.problem.case
    launch = pinned(subject, case, problem.case)
    if launch is None and subject.supports.refusal(problem.case) is not None:
        return None
    return _compared(ground, name, problem, launch, visible)


def _compared(
    ground: Ground, name: str, problem: Problem, launch: tuple[tuple[str, int], ...] | None, visible: Any
) -> Iterator[Verdict]:
    subject, base = ground.subject, ground.base
    if launch is not None:
        problem = relaunched(problem, launch)
        base = base if launch == base.problem.case.launch else ground.run(relaunched(base.problem, launch))
    other = ground.run(problem)
    forms = judged_form(subject, base.problem), judged_form(subject, problem)
    loose = set(base.outputs)
    if ground.exact and launch is not None and all(_together(form) for form in forms):
        # A sum over sequences or heads may take another order in another shape.
        loose = {key for key in loose if output(key).sums_pairs(base.problem)}
        cut = {key: (x, _first_keys(other.outputs[key], key, x)) for key, x in base.outputs.items() if key not in loose}
        yield from bitwise(name, cut, undefined_elements(base.problem, subject.contract))
    if not loose:
        return
    left = ground.sides if base is ground.base else sides(subject, base, ground.inputs)
    inputs = None if visible is None else dataclasses.replace(inputs_of(problem)[0], visible=visible)
    right = {key: side.map(_cutter(key, base)) for key, side in sides(subject, other, inputs).items()}
    yield from within(name, *({key: side for key, side in given.items() if key in loose} for given in (left, right)))


def _together(form: Form) -> bool:
    """Whether all keys of a row go through one running maximum: the ends of splits move with the number of keys."""
    return form.n_splits == 1


def _cutter(name: str, base: Execution) -> Any:
    return lambda tensor: _first_keys(tensor, name, base.outputs[name])


def _first_keys(tensor: torch.Tensor, name: str, model: torch.Tensor) -> torch.Tensor:
    """The part of an output that belongs to the keys that `model` has."""
    axis = output(name).axis("key")
    return tensor if axis is None else tensor.narrow(axis, 0, model.shape[axis])


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
