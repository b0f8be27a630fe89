"""Writes docs/checks.md from the registry: `python -m flashverify.checks.document > docs/checks.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.outcomes import OUTCOMES
from flashverify.checks.registry import CHECK_SPECS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.checks.spec import CheckSpec, ErrorClass

__all__ = ["document"]

_INTRODUCTION = """\
# Checks

A case is put to the checks below, in this order. Each check starts from one pass of the subject, the base pass. This page is written
from the registry of checks by `python -m flashverify.checks.document > docs/checks.md`.

A verdict names its check and, when it fails, a class of failure. The column "title" is what a report says; `OUTPUT` stands for the
output, input or argument that the verdict names, and `ERROR` for the class itself.
"""
_OUTCOMES = """\
## What happens to a whole case

No check asks for these. A verdict of `harness` has the status `error`: it is neither a pass nor a failure.
"""


def document() -> str:
    """The page as Markdown."""
    return "\n".join(
        [_INTRODUCTION, *_overview(), *(line for spec in CHECK_SPECS for line in _check(spec)), *_outcomes()]
    )


def _overview() -> Iterator[str]:
    yield "| check | question | needs, beside the base pass |"
    yield "|---|---|---|"
    for spec in CHECK_SPECS:
        yield f"| [{spec.name}](#{spec.name}) | {spec.question} | {', '.join(spec.needs) or 'nothing'} |"
    yield ""


def _check(spec: CheckSpec) -> Iterator[str]:
    yield f"## {spec.name}\n"
    yield f"{spec.question}\n"
    if len(spec.questions) > 1:
        yield f"It asks: {', '.join(f'`{name}`' for name in spec.question_names)}.\n"
    if spec.of_right_passes:
        yield "It is asked only of a base pass that is within its bounds.\n"
    yield from _errors(spec.errors)


def _outcomes() -> Iterator[str]:
    yield _OUTCOMES
    for name, errors in OUTCOMES.items():
        yield f"### {name}\n"
        yield from _errors(errors)


def _errors(errors: tuple[ErrorClass, ...]) -> Iterator[str]:
    yield "| class | title | meaning |"
    yield "|---|---|---|"
    for error in errors:
        yield f"| `{error.name}` | {error.title.format(output='OUTPUT', error='ERROR')} | {error.sentence} |"
    yield ""


if __name__ == "__main__":
    print(document(), end="")
