"""`cases` and `standard_cases`: problems that a subject accepts, drawn or always the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports
    from flashverify.subjects.interface import Subject

__all__ = ["cases", "standard_cases"]


def cases(subject: Subject | Supports | str, *, device: str = "cpu") -> SearchStrategy[Case]:
    """A Hypothesis strategy of cases that a subject supports, small first, as `flashverify fuzz` draws them.

        @hypothesis.given(cases(mine))
        def test_mine(case):
            assert not judge_case(mine, case, checks=("accuracy", "nonfinite")).failures

    Args:
        subject: the kernel under test, what it declares, or what `--subject` takes.
        device: `cpu` (small cases, for interpreted kernels too) or `cuda` (larger ones, and of a kernel that compiles a finite list of
            kinds).

    Returns:
        The strategy.

    Raises:
        SubjectLoadError: there is no such subject, or its module cannot be imported.
        UsageError: the device or the subject is not accepted.
    """
    from flashverify.case.space.profiles import profile_of
    from flashverify.case.space.strategies import cases as drawn

    return drawn(_supports(subject, device), profile=profile_of(device))


def standard_cases(subject: Subject | Supports | str, *, device: str = "cpu") -> tuple[Case, ...]:
    """The fixed cases of `flashverify run` that a subject supports: always the same ones in the same order.

        @pytest.mark.parametrize("case", standard_cases(mine), ids=str)
        def test_mine(case):
            assert not judge_case(mine, case).failures

    Args:
        subject: the kernel under test, what it declares, or what `--subject` takes.
        device: `cpu` or `cuda`, which adds larger cases.

    Returns:
        The cases.

    Raises:
        SubjectLoadError: there is no such subject, or its module cannot be imported.
        UsageError: the device or the subject is not accepted.
    """
    from flashverify.case.space.matrix import standard_matrix

    return standard_matrix(_supports(subject, device), device=device)


def _supports(subject: Subject | Supports | str, device: str) -> Supports:
    from flashverify.subjects import Subject, Supports, load_subject

    if device not in ("cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: 'cpu' or 'cuda'")
    if isinstance(subject, Supports):
        return subject
    found = load_subject(subject) if isinstance(subject, str) else subject
    if not isinstance(found, Subject):
        raise UsageError(f"subject={subject!r:.200} is not accepted: a subject, a Supports or a name")
    return found.supports
