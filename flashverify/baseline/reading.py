"""Reading `flashverify-baseline.toml`. What is not understood is refused: an entry that is misread would hide a failure."""

from __future__ import annotations

import datetime
import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flashverify.baseline.entries import Baseline, Ceiling, Known
from flashverify.case.text import format_case, parse_case
from flashverify.errors import ConfigError, UsageError
from flashverify.formats import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NAME", "baseline_for", "read_baseline"]

NAME = "flashverify-baseline.toml"
_FORMAT = 1


def baseline_for(given: str | None, folder: Path) -> Baseline | None:
    """The baseline in force: the file that was named, or the one beside the pyproject.toml of a folder; None where there is none.

    Args:
        given: path of a file; None for none.
        folder: where the search for pyproject.toml begins, upwards.

    Raises:
        ConfigError: the file is missing or not accepted.
    """
    if given is not None:
        return read_baseline(Path(given))
    root = next((each for each in (folder, *folder.parents) if (each / "pyproject.toml").is_file()), None)
    return read_baseline(root / NAME) if root is not None and (root / NAME).is_file() else None


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file.

    Raises:
        ConfigError: it cannot be read, or an entry is not accepted: an unknown key, a missing reason, link or date, a damaged value.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if unknown := sorted(table.keys() - {"format", "known", "ratio"}):
        raise ConfigError(f"unknown key {unknown[0]!r} in {path}; accepted: format, [[known]], [[ratio]]")
    if table.get("format") != _FORMAT:
        raise ConfigError(f"format={table.get('format')!r} in {path} is not accepted: {_FORMAT}")
    known = tuple(
        Known(**_entry(each, n, _KNOWN, _KNOWN_REQUIRED, f"{path}, [[known]]"))
        for n, each in _each(table, "known", path)
    )
    for number, entry in enumerate(known, 1):
        if not entry.cause and not entry.check:
            raise ConfigError(
                f"{path}, [[known]] {number}: neither cause nor check is given: it would stand for every failure"
            )
    ceilings = tuple(
        Ceiling(**_entry(each, n, _RATIO, _RATIO_REQUIRED, f"{path}, [[ratio]]"))
        for n, each in _each(table, "ratio", path)
    )
    return Baseline(path, known, ceilings)


def _each(table: dict[str, Any], name: str, path: Path) -> list[tuple[int, dict[str, Any]]]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ConfigError(f"{name!r} in {path} is not accepted: tables, each after a line [[{name}]]")
    return list(enumerate(found, 1))


def _entry(
    given: dict[str, Any], number: int, fields: dict[str, _Field], required: tuple[str, ...], where: str
) -> dict[str, Any]:
    place = f"{where} {number}"
    for key in given:
        if key not in fields:
            raise ConfigError(f"{place}: unknown key {key!r}; accepted: {', '.join(fields)}")
    for key in required:
        if key not in given:
            raise ConfigError(f"{place}: {key} is missing: {fields[key][1]}")
    found = {}
    for key, value in given.items():
        parse, accepted = fields[key]
        try:
            found[key] = parse(value)
        except (ValueError, TypeError) as error:
            detail = f" ({error})" if isinstance(error, UsageError) else ""
            raise ConfigError(f"{place}: {key}={value!r} is not accepted: {accepted}{detail}") from None
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _link(value: Any) -> str:
    parts = urlsplit(_text(value))
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError
    return _text(value)


def _date(value: Any) -> datetime.date:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise ValueError
    return value


def _dtypes(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not set(value) <= set(DTYPES):
        raise ValueError
    return tuple(value)


def _dtype(value: Any) -> str:
    return _dtypes([value])[0]


def _ratio(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError
    return float(value)


def _case(value: Any) -> str:
    return format_case(parse_case(_text(value)))


_Field = tuple["Callable[[Any], Any]", str]
_WORDS = "a text that is not empty"
_SHARED: dict[str, _Field] = {
    "subject": (_text, "the name of the subject, or what --subject takes"),
    "reason": (_text, "why it may stand, in words"),
    "link": (_link, "an http or https address where it is followed up"),
    "date": (_date, "a date as 2026-01-31, without quotes"),
}
_KNOWN: dict[str, _Field] = _SHARED | {
    "cause": (_text, "the name that a diagnosis begins with, as causal-one-key-more"),
    "check": (_text, "the name of a check"),
    "error": (_text, "a class of failures of the check"),
    "output": (_text, "the name of an output"),
    "dtypes": (_dtypes, f"a list of dtypes: {', '.join(DTYPES)}"),
    "worst": (_ratio, "a positive number"),
    "case": (_case, "the text of a case"),
}
_KNOWN_REQUIRED = ("subject", "reason", "link", "date")
_RATIO: dict[str, _Field] = _SHARED | {
    "output": (_text, "the name of an output"),
    "dtype": (_dtype, f"one of {', '.join(DTYPES)}"),
    "worst": (_ratio, "a positive number"),
}
_RATIO_REQUIRED = ("subject", "output", "dtype", "worst", "date")
