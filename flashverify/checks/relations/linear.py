"""The relation that holds because the gradients are linear in dO."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.checks.passes.derived_problems import plain
from flashverify.checks.relations.ground import within
from flashverify.checks.relations.spec import RelationSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict

__all__ = ["SPECS"]


def linear_do(ground: Ground) -> Iterator[Verdict] | None:
    """The gradients are linear in dO: those of its even and of its odd elements, 0 elsewhere, add up to the whole, dLSE on one side."""
    if ground.problem.do is None:
        return None
    return _linear_do(ground, ground.problem.do)


def _linear_do(ground: Ground, do: torch.Tensor) -> Iterator[Verdict]:
    import torch

    problem = ground.problem
    rows, channels = torch.arange(do.shape[2], device=do.device), torch.arange(do.shape[3], device=do.device)
    even = (rows.view(-1, 1) + channels) % 2 == 0
    zero = torch.zeros((), dtype=do.dtype, device=do.device)
    halves = [
        dataclasses.replace(
            problem,
            case=plain(problem.case),
            do=torch.where(mask, do, zero),
            dlse=problem.dlse if first or problem.dlse is None else torch.zeros_like(problem.dlse),
        )
        for first, mask in ((True, even), (False, ~even))
    ]
    one, two = (ground.within(half) for half in halves)
    total = {name: one[name].plus(two[name]) for name in one if name not in ("o", "lse")}
    yield from within("linear-do", total, ground.sides)


SPECS = (
    RelationSpec(
        name="linear-do",
        passes=2,
        loads_alike=True,
        run=linear_do,
        sentence="the gradients of two parts of dO add up to those of the whole",
        title="{output} is not linear in dO",
    ),
)
