"""A gradient asked for by itself, of subjects whose backward can be told what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.guard import guard_outputs
from flashverify.checks.accuracy import undefined_elements
from flashverify.checks.execution import Execution
from flashverify.checks.relations.ground import bitwise, failure, sides, within
from flashverify.subjects.interface import Selective

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict

__all__ = ["alone"]

_ASKED = ("dq", "dk", "dv", "dbias", "dsink")


def alone(ground: Ground) -> Iterator[Verdict] | None:
    """A gradient asked for by itself is the one asked for with the others, and no other is computed."""
    asked = tuple(name for name in _ASKED if name in ground.base.outputs)
    subject = ground.subject
    return _alone(ground, subject, asked) if asked and isinstance(subject, Selective) else None


def _alone(ground: Ground, subject: Selective, asked: tuple[str, ...]) -> Iterator[Verdict]:
    problem = ground.problem
    found: dict[str, torch.Tensor] = {}
    with guard_outputs(pattern=1):  # what nobody wrote does not hold the bits of the base pass
        forward = ground.subject.forward(problem)
        for name in asked:
            given = subject.backward_of(problem, forward, frozenset({name}))
            for other in sorted(given.keys() - {name}):
                yield failure("alone", other, (), f"it was computed where {name} alone was asked for")
            if name in given:
                found[name] = given[name].detach()
            else:
                yield failure("alone", name, (), "it is missing where it alone was asked for")
    if ground.exact:
        pairs = {name: (ground.base.outputs[name], tensor) for name, tensor in found.items()}
        yield from bitwise("alone", pairs, undefined_elements(problem, ground.subject.contract))
        return
    selected = Execution(problem, found, {}, ())
    yield from within(
        "alone", {name: ground.sides[name] for name in found}, sides(ground.subject, selected, ground.inputs)
    )
