"""The first pass of a case, which every check starts from."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.checks.passes.derived_problems import work

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.memory.arena import Arena
    from flashverify.checks.accuracy import Accuracy
    from flashverify.checks.passes.execution import Execution
    from flashverify.interpreter.memory import Place
    from flashverify.interpreter.repeats import Launches
    from flashverify.subjects.interface import Subject

__all__ = ["ORACLE_LIMIT", "BasePass", "beyond_oracle"]

ORACLE_LIMIT = 1 << 36
"""Multiply-adds of the forward, B Hq Sq Sk (D + Dv), beyond which the oracle judges rows and keys by sample: some seconds on a GPU."""


def beyond_oracle(case: Case) -> bool:
    """Whether the case is too large for an oracle of every row."""
    return work(case) > ORACLE_LIMIT


@dataclass(frozen=True)
class BasePass:
    """A pass over the case as it stands.

    Attributes:
        subject: the kernel under test.
        execution: what the pass left behind.
        arena: the storage of its inputs.
        calls: for the check `reuse`, which call must still equal the first one.
        launches: for the check `config`, how many other launches are run, at most.
        reported: for the check `sanitizer`, see `Plan.reported`.
        known: its interpreted launches, for questions of `Question.loads_alike`; None where none of them is asked.
    """

    subject: Subject
    execution: Execution
    arena: Arena
    calls: int
    launches: int
    reported: set[Place] | None = None
    known: Launches | None = None

    @property
    def case(self) -> Case:
        """The case that was run."""
        return self.execution.problem.case

    @property
    def beyond_oracle(self) -> bool:
        """Whether the case is too large for an oracle of every row."""
        return beyond_oracle(self.case)

    @functools.cached_property
    def undefined(self) -> dict[str, torch.Tensor]:
        """Per output the elements that the contract leaves open, bool, broadcastable to the output."""
        from flashverify.checks.left_open import undefined_elements

        return undefined_elements(self.execution.problem, self.subject.contract)

    @functools.cached_property
    def accuracy(self) -> Accuracy:
        """Every output against the oracle; made once, for `accuracy` and `nonfinite`."""
        from flashverify.checks.accuracy import check_accuracy
        from flashverify.checks.sampled.judging import check_sampled

        if self.beyond_oracle:
            return check_sampled(self.subject, self.execution)
        return check_accuracy(self.subject, self.execution)

    @property
    def compared(self) -> Accuracy | None:
        """`accuracy`, where a check asked for it."""
        found: Accuracy | None = self.__dict__.get("accuracy")
        return found
