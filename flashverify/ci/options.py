"""The options of the commands that write outputs for a CI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["CI_COMMENT", "ci_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
CI_COMMENT = click.option("--comment", metavar="FILE", help="write Markdown for a comment on a pull request")


def ci_options(command: _Command) -> _Command:
    """`--junit`, `--sarif`, `--comment` and `--badge`."""
    for option in (
        click.option("--badge", metavar="FILE", help="write the JSON of a badge"),
        CI_COMMENT,
        click.option("--sarif", metavar="FILE", help="write SARIF, for code scanning"),
        click.option("--junit", metavar="FILE", help="write JUnit XML"),
    ):
        command = option(command)
    return command
