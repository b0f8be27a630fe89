"""Whether a later call writes over what an earlier one returned: outputs that lie in a buffer that calls share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.changes import change
from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import execute
from flashverify.diagnosis.attempting import attempted
from flashverify.diagnosis.readings.said import listed
from flashverify.outputs import OUTPUTS

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["overwritten"]


def overwritten(subject: Subject, case: Case) -> str:
    """Which outputs of a call hold something else after a call with other values, in a sentence; empty where none do.

    Args:
        subject: the kernel under test.
        case: whose calls are asked.
    """
    same = _changed(subject, case, replace(case, values=replace(case.values, seed=case.values.seed + 1, edits=())))
    if not same:
        return ""
    wider = change(case, seq_q=case.seq_q + 1, seq_k=case.seq_k + 1)
    other = set() if wider is None or subject.supports.refusal(wider) else _changed(subject, case, wider)
    names = [name for name in OUTPUTS if name in same]
    which = "a later call" if set(names) <= other else "a later call of the same shapes"
    return f"Every call returns {listed(names)} in one buffer: {which} writes over what an earlier one returned."


def _changed(subject: Subject, first: Case, second: Case) -> set[str]:
    """The outputs of a first call that a second one changes."""

    def ask() -> set[str]:
        one, two = (materialize(case, subject.device())[0] for case in (first, second))
        early = execute(subject, one).outputs
        held = {name: tensor.detach().clone() for name, tensor in early.items()}
        late = execute(subject, two).outputs
        return {
            name
            for name, tensor in early.items()
            if name in late and not torch.equal(tensor.detach().nan_to_num(), held[name].nan_to_num())
        }

    return attempted("asking for a shared buffer", ask, set())
