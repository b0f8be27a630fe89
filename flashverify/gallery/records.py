"""What the gallery writes down of a kernel that it judged, or could not judge."""

from __future__ import annotations

import msgspec

__all__ = ["Finding", "Judged"]


class Finding(msgspec.Struct, frozen=True):
    """A finding of one kernel.

    Attributes:
        title: what is wrong, in words.
        failure: the first line of its verdict.
        check: the check that failed.
        cases: how many cases showed it.
        case: the smallest case that shows it, as text.
        replay: the command that judges this case again.
    """

    title: str
    failure: str
    check: str
    cases: int
    case: str
    replay: str


class Judged(msgspec.Struct, frozen=True):
    """A kernel and what the search said of it.

    Attributes:
        release: name in the catalogue.
        distribution: name in the package index; `torch`, or the file, where there is none.
        version: that was judged; of a file the first 16 digits of its SHA-256.
        licence: of the package.
        kernel: name of the subject.
        what: the function, and what it was given.
        verdict: in words; where nothing was judged, why.
        exit_code: of the search: 0 clean, 1 findings, 2 and 3 not judged.
        cases: judged.
        covering: of these, how many count as coverage.
        seconds: of the search.
        worst: largest error / bound by output.
        findings: of this run.
    """

    release: str
    distribution: str
    version: str
    licence: str
    kernel: str
    what: str
    verdict: str
    exit_code: int
    cases: int = 0
    covering: int = 0
    seconds: float = 0.0
    worst: dict[str, float] = {}
    findings: tuple[Finding, ...] = ()
