"""What a run over mutants leaves on disk: a header, one line of JSON a mutant, and what the lines add up to."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["FORMAT", "Header", "MutantResult", "MutantStatus"]

FORMAT = 1


class MutantStatus(StrEnum):
    """What became of a mutant."""

    FOUND = "found"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    INVALID = "invalid"
    QUIET = "quiet"
    FALSE_ALARM = "false-alarm"
    NOT_RUN = "not-run"
    ERROR = "error"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the results depend on; a run goes on only under the same header.

    Attributes:
        seed: of the drawn cases and of the sample.
        cases: drawn per subject.
        limit: seconds of the search for one mutant.
        device: `cpu` or `cuda`.
        shrink: whether detecting cases are made minimal.
        include_equivalent: whether mutants known to be equivalent are run.
        mutants: names, in the order of judging.
        digest: of the mutants and of the kernels that they change, hex.
        environment: versions, machine, commit.
        format: of the files.
    """

    seed: int
    cases: int
    limit: float
    device: str
    shrink: bool
    include_equivalent: bool
    mutants: tuple[str, ...]
    digest: str
    environment: dict[str, str]
    format: int = FORMAT


class MutantResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What became of one mutant, and how.

    Attributes:
        name: of the mutant.
        bank: `curated`, `generated` or `control`.
        status: what became of it.
        subject: the adapter that it stood behind.
        file: in `flashverify_kernels`, with `line`, where the change begins, from 1.
        line: see `file`; 0 where the change does not apply.
        modelled_on: the real defect, or the operator that made the change.
        cases: judged, the detecting one included.
        seconds: of judging them.
        check: of the failing verdict, with its `error`, `output`, `mode` and `message`.
        case: text form of the first detecting case.
        minimal: text form of the smallest failing case found; empty where nothing was shrunk.
        elements: of q and k of the smallest failing case.
        semantics: the wrong semantics that describe the mutant; empty where none does.
        diagnosis: the wrong semantics that the harness named; empty where it named none.
        reason: why it was not run, is equivalent, is invalid or could not be judged.
    """

    name: str
    bank: str
    status: MutantStatus
    subject: str
    file: str
    line: int = 0
    modelled_on: str = ""
    cases: int = 0
    seconds: float = 0.0
    check: str = ""
    error: str = ""
    output: str = ""
    mode: str = ""
    message: str = ""
    case: str = ""
    minimal: str = ""
    elements: int = 0
    semantics: str = ""
    diagnosis: str = ""
    reason: str = ""

    @property
    def named(self) -> str:
        """`right` or `wrong` where the mutant has semantics and was found; empty otherwise."""
        if self.status is not MutantStatus.FOUND or not self.semantics:
            return ""
        return "right" if self.diagnosis == self.semantics else "wrong"
