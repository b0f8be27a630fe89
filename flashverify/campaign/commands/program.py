"""The group of commands: an error is one line on stderr and has the documented exit code. Imports no torch."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

import click

from flashverify.campaign.commands.streams import lasting_streams
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
        _search_current_folder()
        with lasting_streams() as streams:
            code = self._run(args, prog_name or "flashverify")
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            if streams.refused and code in (0, 141):
                code = _refuse(f"what was to be printed is lost: {streams.refused}", 3)
        sys.exit(code)

    def _run(self, args: Sequence[str] | None, prog_name: str) -> int:
        words = sys.argv[1:] if args is None else args
        try:
            for word in words:
                if not _is_text(word):
                    return _refuse(f"argument {word!r} is not accepted: text in UTF-8", 2)
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
            return 141
        except (OSError, MemoryError) as error:
            return _refuse(f"{type(error).__name__}: {error}", 3)
        except Exception as error:  # a defect of flashverify is no finding
            return _refuse(f"flashverify itself failed: {type(error).__name__}: {error}\n{traceback.format_exc()}", 3)


def _search_current_folder() -> None:
    """`--subject module:name` finds modules of the current folder, where there is one."""
    try:
        folder = os.getcwd()
    except OSError:
        return
    if folder not in sys.path:
        sys.path.append(folder)


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


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
