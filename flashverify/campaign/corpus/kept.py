"""A corpus of your own, kept between runs: cases that failed, those that came closest to a bound, and one of each trait. One text form a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from flashverify.campaign.store.files import write_atomic
from flashverify.campaign.store.reader import open_run
from flashverify.case.space.traits import traits_of
from flashverify.case.text import VERSION, format_case, parse_case
from flashverify.errors import ConfigError, UsageError
from flashverify.judge.verdict import from_hex

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["keep_cases", "kept_cases", "merge_corpora"]

_HEAD = "# Cases of `flashverify --corpus`: judged first, whatever comes after."
_MOST = 500
_Place = TypeVar("_Place", tuple[str, str], tuple[str, str, str])


def kept_cases(path: Path) -> tuple[str, ...]:
    """The cases of a file; none where there is no such file yet.

    Raises:
        ConfigError: it cannot be read, or a line is no case.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    found: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            try:
                found[format_case(parse_case(line))] = None
            except UsageError as error:
                raise ConfigError(f"{path}, line {number}: {line[:80]!r} is not accepted: {error}") from error
    return tuple(found)


def keep_cases(path: Path, run: Path) -> None:
    """Add the cases of a run: of each finding two, of each output and dtype the nearest to its bound, and one of each trait.

    Of a finding they are the smallest and the first one; of a trait that no case of the file has, the one nearest a bound. Of more than 500 the oldest ones go that are kept for none of this. Comments stay.

    Raises:
        StoreError: the run cannot be read, or the file cannot be written.
    """
    stored = open_run(run)
    nearest: dict[tuple[str, str, str], tuple[float, str]] = {}
    of_trait: dict[tuple[str, str], tuple[float, str]] = {}
    for result in stored.results():
        case = parse_case(result.case)
        below = {stats.output: ratio for stats in result.stats if (ratio := from_hex(stats.worst)) <= 1}
        for output, ratio in below.items():
            _raise(nearest, (result.subject, output, case.dtype), ratio, result.case)
        if result.coverage:
            for trait in traits_of(case):
                _raise(of_trait, trait, max(below.values(), default=0.0), result.case)
    new = [text for finding in stored.findings for text in (finding.record.first, finding.record.case)]
    new += [text for _, text in sorted(nearest.values())]
    known = kept_cases(path)
    covered = {trait for text in (*known, *new) for trait in traits_of(parse_case(text))}
    for trait, (_, text) in sorted(of_trait.items()):
        if trait not in covered:
            new.append(text)
            covered |= set(traits_of(parse_case(text)))
    _write(path, new, wanted=new)


def merge_corpora(path: Path, others: Sequence[Path]) -> None:
    """Add the cases of other files, each once; of more than 500 as `keep_cases` does.

    Raises:
        ConfigError: a file cannot be read, or a line is no case.
        StoreError: the file cannot be written.
    """
    _write(path, [text for other in others for text in kept_cases(other)])


def _raise(
    largest: dict[_Place, tuple[float, str]],
    place: _Place,
    ratio: float,
    text: str,
) -> None:
    if place not in largest or ratio > largest[place][0]:
        largest[place] = (ratio, text)


def _write(path: Path, new: Sequence[str], wanted: Sequence[str] = ()) -> None:
    """Append what is not there, and leave out the oldest of too many: first those that are neither wanted nor the newest of a trait."""
    known = kept_cases(path)
    fresh = [text for text in dict.fromkeys(new) if text not in known]
    too_many = max(0, len(known) + len(fresh) - _MOST)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else [_HEAD]
    lines += fresh
    if too_many:
        kept, covered = set(wanted), set[tuple[str, str]]()
        for text in reversed((*known, *fresh)):
            traits = set(traits_of(parse_case(text)))
            if traits - covered:
                kept.add(text)
                covered |= traits
        cases = [n for n, line in enumerate(lines) if line.startswith(VERSION)]
        cases.sort(key=lambda n: (format_case(parse_case(lines[n])) in kept, n))
        for number in sorted(cases[:too_many], reverse=True):
            del lines[number]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(f"{line}\n" for line in lines).encode())
