"""A gradient asked for by itself, of subjects whose backward can be told what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.guard import guard_outputs
from flashverify.checks.passes.bitwise import first_difference
from flashverify.checks.passes.execution import Execution, sparing
from flashverify.checks.relations.ground import failure, within
from flashverify.checks.relations.side import sides
from flashverify.checks.relations.spec import RelationSpec
from flashverify.outputs import INPUT_GRADIENTS
from flashverify.subjects.blame import subject_code
from flashverify.subjects.interface import Selective

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict

__all__ = ["SPECS"]


def alone(ground: Ground) -> Iterator[Verdict] | None:
    """A gradient asked for by itself is the one asked for with the others, within both bounds, and no other is returned."""
    asked = tuple(name for name in INPUT_GRADIENTS if name in ground.base.outputs)
    subject = ground.subject
    return _alone(ground, subject, asked) if asked and isinstance(subject, Selective) else None


def _alone(ground: Ground, subject: Selective, asked: tuple[str, ...]) -> Iterator[Verdict]:
    problem = ground.problem
    found: dict[str, torch.Tensor] = {}
    # What nobody wrote does not hold the bits of the base pass.
    guarded = guard_outputs(pattern=1) if ground.launches is None else sparing(problem, ground.launches)
    with guarded:
        with subject_code():
            forward = ground.subject.forward(problem)
        for name in asked:
            with subject_code():
                given = subject.backward_of(problem, forward, frozenset({name}))
            for other in sorted(given.keys() - {name}):
                yield failure("alone", other, (), f"it was returned where {name} alone was asked for")
            if name not in given:
                yield failure("alone", name, (), "it is missing where it alone was asked for")
                continue
            tensor, model = given[name].detach(), ground.base.outputs[name]
            if (tensor.shape, tensor.dtype) != (model.shape, model.dtype):
                yield failure("alone", name, (), f"alone it is {_kind(tensor)}, with the others {_kind(model)}")
            elif first_difference(tensor, model) is not None:
                found[name] = tensor
    if not found:
        return
    selected = Execution(problem, found, {}, ())
    yield from within(
        "alone", {name: ground.sides[name] for name in found}, sides(ground.subject, selected, ground.inputs)
    )


def _kind(x: torch.Tensor) -> str:
    return f"{list(x.shape)} {str(x.dtype).removeprefix('torch.')}"


SPECS = (
    RelationSpec(
        name="alone",
        passes=2,  # a forward, and each part of a backward by itself
        loads_alike=True,
        run=alone,
        sentence="a gradient asked for by itself is the one asked for with the others",
        title="{output} differs when it is asked for alone",
    ),
)
