"""Answers to the questions of a probe, by running the subject in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.case import Case
from flashverify.describe.fields import field_texts
from flashverify.errors import FlashverifyError, UsageError
from flashverify.probing.answers import Answer, Explained, Failed, Loaded, Repeated
from flashverify.probing.questions import Explain, FormFit, Load, Question, Repeat, Trial

if TYPE_CHECKING:
    from flashverify.subjects.interface import Subject

__all__ = ["Answering"]


class Answering:
    """A subject and what it answers. An exception of the subject is an answer.

    Args:
        subject: already loaded; None where the first question says which.
    """

    def __init__(self, subject: Subject | None = None) -> None:
        self._subject = subject

    def ask(self, question: Question) -> Answer:
        """The answer; `Failed` where the question cannot be asked."""
        try:
            return self._answer(question)
        except FlashverifyError as error:
            return Failed(kind=type(error).__name__, message=str(error))
        except Exception as error:
            return Failed(kind="", message=f"{type(error).__name__}: {str(error)[:500]}")

    def _answer(self, question: Question) -> Answer:
        if isinstance(question, Load):
            return self._load(question)
        subject = self._subject
        assert subject is not None, "a subject is loaded first"
        if isinstance(question, Trial):
            from flashverify.probing.trial import outcome_of

            return outcome_of(subject, question)
        if isinstance(question, FormFit):
            from flashverify.probing.fitting import fitted_form

            return fitted_form(subject, question)
        return _repeated(subject, question) if isinstance(question, Repeat) else _explained(subject, question)

    def _load(self, question: Load) -> Loaded:
        from flashverify.probing.view import is_function
        from flashverify.subjects import has_gpu, load_subject

        subject = self._subject or load_subject(question.subject)
        if subject.device() == "cuda" and not has_gpu():
            raise UsageError(f"subject={question.subject!r} is not accepted: it needs an NVIDIA GPU")
        self._subject = subject
        declared: dict[str, Any] = {"supports": subject.supports, "contract": subject.contract}
        function = is_function(subject)
        explicit = [name for name, value in declared.items() if not function or value != type(value)()]
        if getattr(subject, "declared_form", subject) is not None:
            explicit.append("form")
        supports = subject.supports
        case = Case(
            dtype=supports.dtypes[0], dim_qk=max(16, supports.dim_multiple), dim_v=max(16, supports.dim_multiple)
        )
        declared["form"] = subject.form(case)
        return Loaded(
            name=subject.name,
            evidence=subject.evidence(),
            declared={name: field_texts(value) for name, value in declared.items()},
            explicit=tuple(explicit),
            launches=supports.launches(),
            function=function,
        )


def _repeated(subject: Subject, question: Repeat) -> Repeated:
    """What the check `determinism` says of a subject that promises nothing."""
    from flashverify.case.text import parse_case
    from flashverify.checks import Plan, judge_case
    from flashverify.judge.verdict import Status
    from flashverify.probing.view import view_of

    view, _ = view_of(subject, question.assumed)
    result = judge_case(view, parse_case(question.case), Plan(checks=("determinism",)))
    wrong = [verdict.message for verdict in result.verdicts if verdict.status in (Status.FAIL, Status.ERROR)]
    return Repeated(differences=tuple(result.warnings), raised="; ".join(wrong))


def _explained(subject: Subject, question: Explain) -> Explained:
    """What a diagnosis says of the first failure of accuracy."""
    from flashverify.case.text import parse_case
    from flashverify.checks import Plan, judge_case
    from flashverify.diagnosis.clock import Clock
    from flashverify.diagnosis.diagnose import diagnose
    from flashverify.probing.view import view_of

    view, _ = view_of(subject, question.assumed)
    case = parse_case(question.case)
    failures = judge_case(view, case, Plan(checks=("accuracy", "nonfinite"))).failures
    if not failures:
        return Explained()
    found = diagnose(view, case, failures[0], seconds=question.seconds, clock=Clock())  # who asks waits no longer
    return Explained(name=found.name, sentence=found.sentence)
