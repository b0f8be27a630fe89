"""Options that several commands share, and the settings that they amount to. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flashverify.case.space.profiles import PROFILES

if TYPE_CHECKING:
    from flashverify.campaign.commands.settings import Settings

__all__ = ["CORPUS", "FAIL_FAST", "JSON", "MPS", "REFUSALS", "REPORT", "settings_of", "shared_options", "shrink_option"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def shared_options(*names: str) -> Callable[[_Command], _Command]:
    """The shared options of these names, which also have FLASHVERIFY_* variables and keys in [tool.flashverify]."""
    known: dict[str, dict[str, Any]] = {
        "subject": {"multiple": True, "metavar": "SPEC", "help": "registered name or module:name; repeatable"},
        "hours": {"metavar": "H", "help": "time budget"},
        "minutes": {"metavar": "M", "help": "time budget"},
        "max-cases": {"metavar": "N", "help": "budget in cases"},
        "max-findings": {"metavar": "N", "help": "end the search when so many findings were seen"},
        "seed": {"metavar": "N", "help": "seed of the campaign"},
        "shard": {"metavar": "I/N", "help": "judge part I of N; `flashverify merge` makes one run of the parts"},
        "workers": {
            "metavar": "N",
            "help": "processes, of all GPUs together [default: one per CPU; on GPUs at most 14 for each]",
        },
        "compilers": {
            "metavar": "N",
            "help": "processes that compile ahead of a search on a GPU, on each machine; 0 is none [default: as many as workers, none beside one worker or with fewer than 4 processors]",
        },
        "out": {"metavar": "DIR", "help": "run folder [default: a new one in flashverify-out]"},
        "device": {"metavar": "auto|cpu|cuda", "help": "where the subjects run [default: auto]"},
        "engine": {
            "metavar": "local|ray",
            "help": "where the workers run: on this machine, or on every GPU or CPU of a Ray cluster [default: local]",
        },
        "gpus": {"metavar": "all|G,...", "help": "GPUs that the workers share out, by number or name [default: all]"},
        "numerics": {
            "metavar": "ieee|h100|a100",
            "help": "of interpreted kernels, a GPU's also with +2ulp, -2ulp or +0ulp at its end [default: ieee]",
        },
        "baseline": {
            "metavar": "FILE",
            "help": "failures that may stand [default: flashverify-baseline.toml beside pyproject.toml, if it is there]",
        },
        "profile": {
            "metavar": "|".join(PROFILES),
            "help": "how large drawn cases are; long: 1 to 65,536 rows and keys [default: that of the device]",
        },
    }

    def decorate(command: _Command) -> _Command:
        for name in reversed(names):
            command = click.option(f"--{name}", name.replace("-", "_"), **known[name])(command)
        return command

    return decorate


def settings_of(options: dict[str, Any]) -> Settings:
    """What options, variables and pyproject.toml set together; raises UsageError where a value is not accepted."""
    from flashverify.campaign.commands.settings import load_settings

    given = {name.replace("_", "-"): value for name, value in options.items()}
    return load_settings(given, os.environ, Path.cwd())


FAIL_FAST = click.option(
    "-x",
    "--fail-fast",
    "fail_fast",
    is_flag=True,
    default=None,
    help="end the search at the first finding: --max-findings 1",
)


def shrink_option(text: str) -> Callable[[_Command], _Command]:
    """`--shrink/--no-shrink`, with its help."""
    return click.option("--shrink/--no-shrink", default=None, help=text)


REFUSALS = click.option(
    "--refusals",
    is_flag=True,
    help="then put cases outside the declaration, each by one property: they must be refused or right; exit code 4 where they are not",
)
CORPUS = click.option(
    "--corpus",
    metavar="FILE",
    help="judge the cases of a file first, and add to it what failed, what came near a bound and one case of each trait",
)
MPS = click.option(
    "--mps/--no-mps",
    default=None,
    help="whether workers share a GPU by NVIDIA's Multi-Process Service [default: where it starts]",
)
JSON = click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
REPORT = click.option("--no-report", is_flag=True, help="store the run, write no report")
