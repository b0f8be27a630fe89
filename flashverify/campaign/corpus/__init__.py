"""The packaged corpus: cases that showed defects, and cases on which clean kernels came close to their bounds.

Two text files beside this package, written by `benchmarks/build_corpus.py`, one case a line:

    detecting.txt   <what it found> fv1 ...
    worst.txt       <error / bound> <output> <mode> <subject> fv1 ...
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from flashverify.case.space.profiles import GPU
from flashverify.case.text import VERSION, format_case, parse_case
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["DETECTING", "WORST", "Entry", "corpus_cases", "format_entry", "parse_entries", "read_corpus"]

DETECTING, WORST = "detecting.txt", "worst.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the corpus.

    Attributes:
        case: the case.
        found: names of defects that it showed, separated by commas; empty in `worst.txt`.
        ratio: error / bound that it had when the file was written; 0 in `detecting.txt`.
        output: where it had it, with its `mode` and `subject`.
    """

    case: Case
    found: str = ""
    ratio: float = 0.0
    output: str = ""
    mode: str = ""
    subject: str = ""


def corpus_cases(device: str = "cpu") -> tuple[Case, ...]:
    """Every case of the corpus, once: those that showed defects first.

    Args:
        device: on `cuda`, where kernels are compiled for each pair of head dims, only cases with those that are drawn there.

    Raises:
        UsageError: a line is damaged; the message names it.
    """
    found = dict.fromkeys(entry.case for name in (DETECTING, WORST) for entry in read_corpus(name))
    return tuple(case for case in found if device != "cuda" or (case.dim_qk, case.dim_v) in GPU.dims)


@functools.cache
def read_corpus(name: str) -> tuple[Entry, ...]:
    """The entries of one of the packaged files.

    Raises:
        UsageError: a line is damaged; the message names it.
    """
    text = resources.files("flashverify.campaign.corpus").joinpath(name).read_text(encoding="ascii")
    return parse_entries(name, text)


def parse_entries(name: str, text: str) -> tuple[Entry, ...]:
    """The entries in the text of a file called `name`; lines that begin with # are left out.

    Raises:
        UsageError: a line is damaged or repeats the case of another; the message names it.
    """
    entries: dict[Case, Entry] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("#"):
            try:
                entry = _entry(line)
            except (UsageError, ValueError) as error:
                raise UsageError(f"{name}, line {number}: {line[:80]!r} is not accepted: {error}") from error
            if entry.case in entries:
                raise UsageError(f"{name}, line {number}: the case stands twice: {format_case(entry.case)}")
            entries[entry.case] = entry
    return tuple(entries.values())


def _entry(line: str) -> Entry:
    head, separator, tail = line.partition(f" {VERSION}")
    words, case = head.split(), parse_case(f"{VERSION}{tail}" if separator else line)
    if len(words) == 1:
        return Entry(case=case, found=words[0])
    if len(words) != 4:
        raise ValueError("a name, or a ratio, an output, a mode and a subject stand before the case")
    ratio = float(words[0])
    if not 0 < ratio < math.inf:
        raise ValueError(f"ratio={words[0]}: a positive number")
    return Entry(case=case, ratio=ratio, output=words[1], mode=words[2], subject=words[3])


def format_entry(entry: Entry) -> str:
    """The line of an entry."""
    words = entry.found or f"{entry.ratio:.4f} {entry.output} {entry.mode} {entry.subject}"
    return f"{words} {format_case(entry.case)}"
