"""What a check, and each question that it puts, declares of itself. Imports no torch: reports read titles from here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

    Answer = list[Verdict] | None

__all__ = ["CheckSpec", "ErrorClass", "Need", "Question", "Slot", "always", "differs"]


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """One way to fail.

    Attributes:
        name: `Verdict.error`; `*` stands for any ending, as in `SIG*`.
        title: the failure in words; `{output}` and `{error}` are those of the verdict.
        sentence: what is true of a subject that fails so.
    """

    name: str
    title: str
    sentence: str

    def covers(self, error: str) -> bool:
        """Whether a verdict's `error` is of this class."""
        return fnmatchcase(error, self.name)


class Need(StrEnum):
    """What a check needs beyond the base pass of a case."""

    PASSES = "further passes"
    ORACLE = "the oracle"
    INTERPRETER = "the interpreter"
    GPU = "a GPU, for some questions"


class Slot(StrEnum):
    """The part of a fuzzed case's budget that a question competes for; each slot draws one of its questions."""

    PADDING = "padding"
    SAME_BITS = "same bits"
    SPARE = "spare"
    FILL = "fill"
    ADDRESSES = "addresses"
    STATE = "state"
    NONE = "none"


def always(_case: Case) -> bool:
    """Every case."""
    return True


def _every(_subject: Subject, _case: Case) -> bool:
    return True


def differs(verdict: Verdict) -> str:
    """A difference that the subject does not promise to be absent, as a warning."""
    return f"{verdict.check}: {verdict.error} differs in {verdict.output}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One thing that a check asks: the unit that plans deal out.

    Attributes:
        name: unique within the check.
        slot: what it competes for in a fuzzed case; `Slot.NONE` is never drawn there.
        passes: of the subject, at most, beyond the base pass.
        passes_pinned: the same for a case whose launch parameters are given; None is `passes`.
        stands: whether the case can be asked, as far as the case alone tells. Asked where a fuzzed case draws its questions, but not for
            the spare slot; the check still answers None where it has nothing to examine.
        of_right_passes: asked only of a pass within its bounds, as `CheckSpec.of_right_passes`.
        weight: chances in the draw of its slot.
        loads_alike: in some of its passes a right kernel loads what it loaded in the base pass: there an interpreted launch that loads
            the same is not run again.
    """

    name: str
    slot: Slot = Slot.SPARE
    passes: int = 1
    passes_pinned: int | None = None
    stands: Callable[[Case], bool] = always
    of_right_passes: bool = False
    weight: int = 1
    loads_alike: bool = False

    def cost(self, case: Case) -> int:
        """Passes of the subject that the question takes of a case, at most."""
        return self.passes if self.passes_pinned is None or not case.launch else self.passes_pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """A check: what it asks, what that takes, how it fails, and how it is run.

    Attributes:
        name: `Verdict.check`.
        question: what is asked, one sentence; a line of docs/checks.md.
        needs: beyond the base pass.
        errors: the classes of its failures.
        run: takes the base pass and the names of questions. It returns failing verdicts, passing ones of differences that are not
            promised to be absent, or `exempt` ones; None where it had nothing to examine, which is no pass.
        questions: what it asks one by one; empty where it is one question that every plan asks.
        applies: whether it has anything to examine of a case, as far as subject and case tell.
        of_right_passes: asked only of a pass within its bounds; one outside them would fail here too, which says nothing new.
        beyond_oracle: asked also of cases that no oracle can reach.
        shared_out: above `Plan.thorough` a third of the questions is asked, by the case's text.
        always_shared: `flashverify run` asks every case a third of the questions, whatever its size.
        remark: a passing verdict as a warning.
    """

    name: str
    question: str
    run: Callable[[BasePass, tuple[str, ...]], Answer]
    errors: tuple[ErrorClass, ...]
    needs: tuple[Need, ...] = ()
    questions: tuple[Question, ...] = ()
    applies: Callable[[Subject, Case], bool] = _every
    of_right_passes: bool = False
    beyond_oracle: bool = False
    shared_out: bool = False
    always_shared: bool = False
    remark: Callable[[Verdict], str] = differs

    @property
    def question_names(self) -> tuple[str, ...]:
        """Names of all its questions."""
        return tuple(question.name for question in self.questions)

    def asked(self, names: tuple[str, ...]) -> tuple[Question, ...]:
        """Its questions of these names, in its own order."""
        return tuple(question for question in self.questions if question.name in names)
