"""Relations of a problem with another one of the same answer: bit for bit under one launch, or within both bounds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import Mask
from flashverify.case.modifiers.logits import modifiers_of
from flashverify.checks.accuracy import judged_form
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.derived_problems import dense_case, pinned, relaunched
from flashverify.checks.relations.ground import alike, bitwise, within
from flashverify.checks.relations.side import sides
from flashverify.checks.relations.spec import RelationSpec
from flashverify.checks.spec import Slot
from flashverify.outputs import output
from flashverify.truth import inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.execution import Execution
    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict
    from flashverify.numerics import Form

__all__ = ["SPECS"]

_APPENDED = 37
"""Keys beyond the declared length: neither a tile nor a fraction of one."""
_LARGE_V = 3.0


def appended_keys(ground: Ground) -> Iterator[Verdict] | None:
    """Keys appended behind the declared length change nothing, whatever they hold."""
    case, mask = ground.problem.case, ground.problem.case.mask
    numbered = any(part is not None for part in (mask.tree, mask.blocks, mask.selection))
    fixed = case.dropout or case.storage.page_size is not None or numbered
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
    other = ground.run(problem, told=visible is None)
    forms = judged_form(subject, base.problem), judged_form(subject, problem)
    loose = set(base.outputs)
    if ground.exact and launch is not None and all(_together(form) for form in forms):
        # A sum over sequences or heads may take another order in another shape.
        loose = {key for key in loose if output(key).sums_pairs(base.problem)}
        cut = {key: (x, _first_keys(other.outputs[key], key, x)) for key, x in base.outputs.items() if key not in loose}
        yield from bitwise(name, cut, undefined_elements(base.problem, subject.contract))
    if alike((base.outputs[key], _first_keys(other.outputs[key], key, base.outputs[key]), None) for key in loose):
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


def _is_causal(case: Case) -> bool:
    return case.mask.causal is not None and case.mask.parts() <= {"causal", "packed"}


# Two passes: the base runs again under a launch that both sides accept, unless the case has one.
SPECS = (
    RelationSpec(
        name="appended-keys",
        slot=Slot.SAME_BITS,
        passes=2,
        passes_pinned=1,
        exact=True,
        run=appended_keys,
        sentence="keys behind the declared length change nothing",
        title="{output} changes with keys behind the declared length",
    ),
    RelationSpec(
        name="chain-tree",
        slot=Slot.SAME_BITS,
        passes=2,
        passes_pinned=1,
        stands=_is_causal,
        exact=True,
        run=chain_tree,
        sentence="causal is the tree in which every node follows the one before it",
        title="{output} differs between causal and a chain tree",
    ),
)
