"""The check `reuse`: a call gives what it would give alone, whatever was called before it and whatever is kept between calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.masks.mask import LENGTHS
from flashverify.checks.reuse import late_backwards, questions
from flashverify.checks.spec import CheckSpec, ErrorClass, Need, Question, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.judge.verdict import Verdict

__all__ = ["NAMES", "QUESTIONS", "SPEC", "ReuseQuestion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseQuestion(Question):
    """One way to come between two calls; its name is the error class.

    Attributes:
        run: failing verdicts, and passing ones that are remarks; None where it does not apply.
        title: its failure in words, as in `ErrorClass`.
        sentence: what is true of a subject that fails so.
    """

    run: Callable[[BasePass], Iterator[Verdict] | None]
    title: str
    sentence: str


def _declares_lengths(case: Case) -> bool:
    return any(any(getattr(case.mask, name) or ()) for name in LENGTHS)


QUESTIONS = (
    ReuseQuestion(
        name="calls",
        slot=Slot.NONE,
        run=questions.calls,
        title="{output} of a later call differs",
        sentence="a later call on the same problem is not the first one",
    ),
    ReuseQuestion(
        name="values",
        slot=Slot.STATE,
        weight=3,
        passes=3,
        loads_alike=True,
        run=questions.values,
        title="{output} keeps values of an earlier call",
        sentence="the answer depends on an earlier call with equal shapes and other values",
    ),
    ReuseQuestion(
        name="lengths",
        slot=Slot.STATE,
        weight=6,
        stands=_declares_lengths,
        passes=2,
        loads_alike=True,
        run=questions.lengths,
        title="{output} keeps lengths of an earlier call",
        sentence="the answer depends on an earlier call with equal shapes and other lengths",
    ),
    ReuseQuestion(
        name="settings",
        slot=Slot.STATE,
        weight=3,
        passes=3,
        loads_alike=True,
        run=questions.settings,
        title="{output} keeps settings of an earlier call",
        sentence="the answer depends on an earlier call with equal shapes and another scale, mask or modifier",
    ),
    ReuseQuestion(
        name="storage",
        slot=Slot.STATE,
        weight=3,
        passes=3,
        loads_alike=True,
        run=questions.storage,
        title="{output} keeps strides or the dtype of an earlier call",
        sentence="the answer depends on an earlier call with equal shapes and other strides or another dtype",
    ),
    ReuseQuestion(
        name="larger",
        slot=Slot.STATE,
        passes=2,
        loads_alike=True,
        run=questions.larger_between,
        title="{output} is spoilt by a larger problem in between",
        sentence="a larger problem between two calls spoils one of them",
    ),
    ReuseQuestion(
        name="backward",
        slot=Slot.STATE,
        stands=lambda case: case.grad.backward,
        passes=2,
        loads_alike=True,
        run=questions.backward,
        title="{output} of a second backward differs",
        sentence="two backwards from one forward are not equal",
    ),
    ReuseQuestion(
        name="forward-between",
        slot=Slot.STATE,
        weight=2,
        stands=lambda case: case.grad.backward,
        passes=2,
        loads_alike=True,
        run=late_backwards.after_other_forward,
        title="{output} is spoilt by another forward before the backward",
        sentence="what a forward keeps for its backward does not outlive the next forward",
    ),
    ReuseQuestion(
        name="another-do",
        slot=Slot.STATE,
        stands=lambda case: case.grad.backward,
        passes=3,
        loads_alike=True,
        run=late_backwards.with_other_gradients,
        title="{output} of a second backward is not that of its own dO",
        sentence="a second backward from one forward keeps something of the dO or dLSE of the first",
    ),
    ReuseQuestion(
        name="stream",
        slot=Slot.NONE,
        run=questions.stream,
        title="{output} differs on another stream",
        sentence="a call on another CUDA stream is not the first one",
    ),
    ReuseQuestion(
        name="together",
        slot=Slot.NONE,
        passes=3,
        run=questions.together,
        title="{output} differs beside a call on another stream",
        sentence="two calls at once on two CUDA streams spoil each other",
    ),
    ReuseQuestion(
        name="graph",
        slot=Slot.NONE,
        passes=3,
        run=questions.graph,
        title="{output} of a replayed CUDA graph differs",
        sentence="a graph cannot be captured, or its replay is not the call",
    ),
)
_SAVED = ErrorClass(
    "saved-state", "the backward changes what the forward saved", "a tensor that the forward saved was written"
)
NAMES = frozenset((*(question.name for question in QUESTIONS), _SAVED.name))
"""Classes of its failures."""
_BY_NAME = {question.name: question for question in QUESTIONS}


def _run(base: BasePass, names: tuple[str, ...]) -> list[Verdict] | None:
    found: list[Verdict] = []
    asked = 0
    for name in names:
        answer = _BY_NAME[name].run(base)
        if answer is not None:
            asked += 1
            found += answer
    return found if asked else None


def _remark(verdict: Verdict) -> str:
    return f"reuse: {verdict.message}"


SPEC = CheckSpec(
    name="reuse",
    question="Does the tenth call return the same bits as the first, after other values, lengths, settings, strides or another dtype at "
    "the same addresses, a larger problem, another forward before the backward, a second backward, another stream or a replayed CUDA graph in between?",
    needs=(Need.PASSES, Need.GPU),
    questions=QUESTIONS,
    errors=(*(ErrorClass(each.name, each.title, each.sentence) for each in QUESTIONS), _SAVED),
    run=_run,
    of_right_passes=True,
    shared_out=True,
    remark=_remark,
)
