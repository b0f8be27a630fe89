"""NaN in any element of a large case in which nothing can overflow: rows and keys that the oracle does not judge included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.left_open import undefined_elements
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from flashverify.checks.passes.execution import Execution
    from flashverify.subjects.interface import Subject

__all__ = ["nan_failures"]


def nan_failures(subject: Subject, execution: Execution) -> list[Verdict]:
    """A failure for every output that holds NaN where the contract says what it holds.

    An infinity is left to the oracle: an LSE without keys may be one, and a gradient in 16 bits may overflow.
    """
    undefined, found = undefined_elements(execution.problem, subject.contract), []
    for name, tensor in execution.outputs.items():
        wrong = tensor.isnan()
        if name in undefined:
            wrong &= ~undefined[name]
        if not bool(wrong.any()):
            continue
        index = tuple(int(i) for i in wrong.nonzero()[0])
        message = f"{name}{list(index)} is NaN where no input is and nothing overflows ({int(wrong.sum())} of {wrong.numel()} elements)"
        found.append(
            Verdict(check="nonfinite", status=Status.FAIL, output=name, error="nan", index=index, message=message)
        )
    return found
