"""The entries of a baseline, and which finding each of them stands for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.judge.wording import ratio_of, ratio_text

if TYPE_CHECKING:
    import datetime

    from flashverify.judge.record import FindingRecord

__all__ = ["Baseline", "Ceiling", "Known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A failure that may stand.

    Attributes:
        subject: its name, or what `--subject` takes.
        reason: why it stands, and `link`, where that is followed up.
        date: of the decision.
        cause: name of the diagnosis.
        check: that fails, with `error`, the class of the failure, and `output`; empty for any.
        dtypes: of the cases; empty for any.
        worst: largest error / bound that may stand.
        case: text of a case that shows it; judged by itself where nothing else showed the failure.
    """

    subject: str
    reason: str
    link: str
    date: datetime.date
    cause: str = ""
    check: str = ""
    error: str = ""
    output: str = ""
    dtypes: tuple[str, ...] = ()
    worst: float = math.inf
    case: str = ""

    @property
    def title(self) -> str:
        """The failure in a few words."""
        words = (self.cause or " ".join(word for word in (self.check, self.error, self.output) if word), *self.dtypes)
        return f"{self.subject}: {' '.join(words)}"

    def means(self, record: FindingRecord) -> bool:
        """Whether a finding is this failure: by its cause, or, where the entry names none, by what fails.

        The very case of the entry may be without a diagnosis.
        """
        if self.subject not in (record.key.subject, record.subject_spec) or not self._fails_like(record):
            return False
        named = record.diagnosis.name if record.diagnosis is not None else ""
        return not self.cause or named == self.cause or (not named and self.case in (record.case, record.first))

    def _fails_like(self, record: FindingRecord) -> bool:
        keys = (record.key, *(folded.key for folded in record.folded))
        return any(
            self.check in ("", key.check)
            and self.error in ("", key.error)
            and self.output in ("", key.output)
            and (not self.dtypes or key.dtype in self.dtypes)
            for key in keys
        )

    def exceeded_by(self, record: FindingRecord) -> str:
        """How a finding is worse than what may stand; empty where it is not."""
        ratio = ratio_of(record.verdict.ratio) if record.verdict.ratio else 0.0
        if ratio <= self.worst:
            return ""
        return f"its error / bound is {ratio_text(ratio)}, the baseline lets {self.worst:g} stand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The largest error / bound that an output of a subject may have in a dtype.

    Attributes:
        subject: its name, or what `--subject` takes.
        output: its name.
        dtype: of the cases.
        worst: the ratio.
        date: of the decision.
        reason: for it, and `link`; may be empty.
    """

    subject: str
    output: str
    dtype: str
    worst: float
    date: datetime.date
    reason: str = ""
    link: str = ""

    def exceeded(self, names: tuple[str, ...], output: str, dtype: str, ratio: float) -> str:
        """How the ratio of an output exceeds it, in words; empty where it does not.

        Args:
            names: of the subject.
            output: its name.
            dtype: of the case.
            ratio: error / bound; NaN exceeds everything.
        """
        if self.subject not in names or (self.output, self.dtype) != (output, dtype) or ratio <= self.worst:
            return ""
        return f"{output} {dtype} of {self.subject}: error / bound {ratio_text(ratio)}, the baseline lets {self.worst:g} stand"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A file, read: `known` failures and `ceilings` of ratios."""

    path: Path
    known: tuple[Known, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()

    @property
    def shown(self) -> str:
        """Its path, from the current folder where it lies below."""
        here = Path.cwd()
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)

    def known_as(self, record: FindingRecord) -> Known | None:
        """The entry that a finding is; None where the baseline does not know it, or lets less of it stand."""
        return next((entry for entry in self.known if entry.means(record) and not entry.exceeded_by(record)), None)

    def of_subjects(self, names: set[str]) -> tuple[Known, ...]:
        """The entries about some subjects."""
        return tuple(entry for entry in self.known if entry.subject in names)
