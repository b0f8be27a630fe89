"""Settings: command line, then FLASHVERIFY_* variables, then [tool.flashverify] of pyproject.toml, then defaults."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify.campaign.environment import DEVICES, NUMERICS
from flashverify.campaign.supervisor.shard import MOST_SHARDS, Shard
from flashverify.case.space.profiles import PROFILES
from flashverify.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["KEYS", "Settings", "load_settings"]

_PREFIX = "FLASHVERIFY_"
_MOST_BYTES, _PATH_BYTES = 255, 3000
"""Of one name, and of a path below which a run still has room for its files."""
_MOST_HOURS = 1_000_000.0
_ENGINES = ("local", "ray")


def _plain(value: Any) -> Any:
    """A number, or text that spells one without underscores and with ASCII digits."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError
    return value


def _whole(low: int, high: int, value: Any) -> int:
    number = int(_plain(value)) if not isinstance(value, float) else None
    if number is None or not low <= number < high:
        raise ValueError
    return number


def _positive(most: float, value: Any) -> float:
    number = float(_plain(value))
    if not 0 < number <= most:
        raise ValueError
    return number


def _names(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(p, str) for p in parts):
        raise ValueError
    names = tuple(p.strip() for p in parts if p.strip())
    if len(set(names)) != len(names) or not names:
        raise ValueError
    return names


def _gpus(value: Any) -> str:
    return ",".join(_names(str(value) if isinstance(value, int) and not isinstance(value, bool) else value))


def _device(value: Any) -> str:
    if value not in DEVICES:
        raise ValueError
    return str(value)


def _engine(value: Any) -> str:
    if value not in _ENGINES:
        raise ValueError
    return str(value)


def _numerics(value: Any) -> str:
    if value not in NUMERICS:
        raise ValueError
    return str(value)


def _profile(value: Any) -> str:
    if value not in PROFILES:
        raise ValueError
    return str(value)


def _flag(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return value if isinstance(value, bool) else words[value.lower()]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    value.encode()  # bytes of a path that are no UTF-8
    return value


def _folder(value: Any) -> str:
    text = _text(value)
    if any(len(os.fsencode(part)) > _MOST_BYTES for part in Path(text).parts) or len(os.fsencode(text)) > _PATH_BYTES:
        raise ValueError
    return text


KEYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "subject": (_names, "names of subjects, each once (`flashverify list` shows them), or module:name"),
    "hours": (lambda value: _positive(_MOST_HOURS, value), f"a positive number, at most {_MOST_HOURS:.0f}"),
    "minutes": (lambda value: _positive(60 * _MOST_HOURS, value), f"a positive number, at most {60 * _MOST_HOURS:.0f}"),
    "max-cases": (lambda value: _whole(1, 2**63, value), "an integer >= 1"),
    "max-findings": (lambda value: _whole(1, 2**63, value), "an integer >= 1"),
    "fail-fast": (_flag, "true or false"),
    "shrink": (_flag, "true or false"),
    "seed": (lambda value: _whole(0, 2**64, value), "an integer, 0 <= seed < 2**64"),
    "shard": (lambda value: str(Shard.parse(_text(value))), f"I/N, 1 <= I <= N <= {MOST_SHARDS:,}"),
    "engine": (_engine, f"one of {', '.join(_ENGINES)}"),
    "gpus": (_gpus, "all, or visible GPUs separated by commas, each once"),
    "workers": (lambda value: _whole(1, 1025, value), "an integer, 1 <= workers <= 1024"),
    "compilers": (lambda value: _whole(0, 1025, value), "an integer, 0 <= compilers <= 1024"),
    "out": (_folder, f"a folder, each name in it of at most {_MOST_BYTES} bytes of UTF-8"),
    "device": (_device, f"one of {', '.join(DEVICES)}"),
    "numerics": (_numerics, f"one of {', '.join(NUMERICS)}"),
    "baseline": (_text, "a file"),
    "mps": (_flag, "true or false"),
    "profile": (_profile, f"one of {', '.join(PROFILES)}"),
}
"""Every key, its parser, and what it accepts, in words."""


_TABLES = ("compare",)
"""Tables inside [tool.flashverify] that a command of their own reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in force; None where nothing was set."""

    subject: tuple[str, ...] | None = None
    seconds: float | None = None
    max_cases: int | None = None
    max_findings: int | None = None
    fail_fast: bool | None = None
    shrink: bool | None = None
    seed: int | None = None
    shard: str | None = None
    gpus: str | None = None
    workers: int | None = None
    compilers: int | None = None
    out: str | None = None
    device: str = "auto"
    engine: str = "local"
    numerics: str | None = None
    baseline: str | None = None
    mps: bool | None = None
    profile: str | None = None


def load_settings(options: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> Settings:
    """Merge the sources.

    Args:
        options: from the command line, by key; None or an empty tuple is not set.
        environ: the process environment.
        folder: where the search for pyproject.toml begins, upwards.

    Raises:
        UsageError: an option's value is not accepted; the message names option, value and what is accepted.
        ConfigError: a variable or a key of pyproject.toml is unknown, or its value is not accepted.
    """
    given = {key: value for key, value in options.items() if value is not None and value != ()}
    layers = [_parse(given, lambda key: f"--{key}", UsageError), _environment(environ), _pyproject(folder)]
    found: dict[str, Any] = {}
    for layer in layers:
        # Hours and minutes are one setting: a layer that gives either hides both of the layers below.
        if ("hours" in layer or "minutes" in layer) and "seconds" not in found:
            found["seconds"] = 3600 * layer.get("hours", 0) + 60 * layer.get("minutes", 0)
        for key, value in layer.items():
            if key not in ("hours", "minutes"):
                found.setdefault(key.replace("-", "_"), value)
    return Settings(**found)


def _parse(values: Mapping[str, Any], label: Callable[[str], str], error: type[UsageError]) -> dict[str, Any]:
    parsed = {}
    for key, value in values.items():
        parse, accepted = KEYS[key]
        try:
            parsed[key] = parse(value)
        except (ValueError, TypeError, OverflowError, KeyError, AttributeError):
            raise error(f"{label(key)}={value!r} is not accepted: {accepted}") from None
    return parsed


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    def variable(key: str) -> str:
        return _PREFIX + key.upper().replace("-", "_")

    known = {variable(key): key for key in KEYS}
    given = {name: value for name, value in environ.items() if name.startswith(_PREFIX)}
    for name in sorted(given.keys() - known.keys()):
        raise ConfigError(f"unknown variable {name}; accepted: {', '.join(known)}")
    return _parse({known[name]: value for name, value in sorted(given.items())}, variable, ConfigError)


def _pyproject(folder: Path) -> dict[str, Any]:
    file = next((p / "pyproject.toml" for p in (folder, *folder.parents) if (p / "pyproject.toml").is_file()), None)
    if file is None:
        return {}
    try:
        table: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    for name in ("tool", "flashverify"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{name}={table!r} in {file} is not accepted: a table, [tool.flashverify]")
    table = {key: value for key, value in table.items() if key not in _TABLES}
    for key in table:
        if key not in KEYS:
            raise ConfigError(f"unknown key {key!r} in [tool.flashverify] of {file}; accepted: {', '.join(KEYS)}")
    return _parse(table, lambda key: f"[tool.flashverify] {key}", ConfigError)
