"""The group of commands: an error is one line on stderr and has the documented exit code. Imports no torch."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from flashverify.errors import FlashverifyError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Program"]


class Program(click.Group):
    """The group, with errors as one line on stderr and the documented exit codes."""

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *_rest: Any, **_extra: Any
    ) -> NoReturn:
        """Run the command line and exit."""
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # `--subject module:name` finds modules of the current folder
        sys.exit(self._run(args, prog_name or "flashverify"))

    def _run(self, args: Sequence[str] | None, prog_name: str) -> int:
        try:
            return int(super().main(args=args, prog_name=prog_name, standalone_mode=False) or 0)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            return 2
        except click.ClickException as error:
            return _refuse(_click_message(error), 2)
        except (click.Abort, KeyboardInterrupt):
            return 130
        except UsageError as error:
            return _refuse(str(error), 2)
        except FlashverifyError as error:
            return _refuse(str(error), 3)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141


def _click_message(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        accepted = sorted(
            option for parameter in error.ctx.command.params for option in parameter.opts if option.startswith("--")
        )
        return f"unknown option {error.option_name}; accepted: {', '.join(accepted)}"
    group = error.ctx.command if isinstance(error, click.UsageError) and error.ctx is not None else None
    if isinstance(group, click.Group) and message.startswith("No such command"):
        return f"{message.rstrip('.')}; accepted: {', '.join(sorted(group.commands))}"
    return message


def _refuse(message: str, code: int) -> int:
    click.echo(f"flashverify: error: {' '.join(message.splitlines()) if code == 2 else message}", err=True)
    return code
