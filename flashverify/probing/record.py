"""What a probe found, as data."""

from __future__ import annotations

import msgspec

from flashverify.probing.answers import Refuted

__all__ = ["Field", "FormRecord", "Inference", "Suspect"]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of the declaration.

    Attributes:
        of: `supports`, `contract` or `form`.
        name: of the field.
        inferred: its value as Python text; empty where nothing told its values apart.
        declared: its value as Python text, by the author or by default.
        stated: the author declared it.
        why: what shows it, or what is missing.
        verdict: `same` or `differs`; `held` of a declared value that nothing refuted and nothing could infer; `not asked` of a field
            that no trial is about.
    """

    of: str
    name: str
    inferred: str
    declared: str
    stated: bool
    why: str = ""
    verdict: str = ""


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """Something that looks like a defect, not like a convention.

    Attributes:
        what: it concerns, such as `window` or `the row sum`.
        sentence: what was seen.
        case: text of a case that shows it; empty where it takes several.
        declare: what an author who means it has to declare, as Python text; empty where nothing can declare it.
        name: of the wrong semantics that explains it, as in `flashverify.diagnosis`; empty where none is known.
        diagnosis: its sentence.
    """

    what: str
    sentence: str
    case: str = ""
    declare: str = ""
    name: str = ""
    diagnosis: str = ""


class FormRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The numerical form of one dtype.

    Attributes:
        dtype: of the cases.
        form: the smallest that explains the fitted cases, as Python text; empty where none does.
        fitted: cases that it was fitted on.
        held_out: other cases that it was judged on.
        failed: those of them that it does not explain.
        refuted: smaller forms, each with the case that refuted it.
        worst: the largest error beside its bound, by output.
        tiles: keys of a tile under which the order of the sums is predicted; 0 where that cannot be told.
    """

    dtype: str
    form: str
    fitted: int
    held_out: int
    failed: tuple[Refuted, ...]
    refuted: tuple[Refuted, ...]
    worst: dict[str, float]
    tiles: int = 0


class Inference(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a probe found.

    Attributes:
        spec: the subject, as it was named.
        name: of the subject.
        device: where it ran.
        evidence: what the answers rest on.
        fields: of the declaration, those first that differ from their defaults.
        suspects: what looks like a defect.
        forms: by dtype.
        notes: what the declaration cannot hold, in words.
        silent: cases outside what the author declares that ran and were wrong, in words.
        undecided: what nothing told apart, in words.
        held: promises that no case broke, and that only the author can make.
        code: the declaration as Python code.
        judged: cases drawn of that declaration, which nothing was inferred from, that were judged.
        failed: texts of those of them that raised or were wrong.
        trials: questions that were asked.
        lost: processes that died or were killed.
        seconds: that it took.
        finished: the budget was enough for every question.
    """

    spec: str
    name: str
    device: str
    evidence: str
    fields: tuple[Field, ...]
    suspects: tuple[Suspect, ...]
    forms: tuple[FormRecord, ...]
    notes: tuple[str, ...]
    silent: tuple[str, ...]
    undecided: tuple[str, ...]
    held: tuple[str, ...]
    code: str
    judged: int
    failed: tuple[str, ...]
    trials: int
    lost: int
    seconds: float
    finished: bool

    @property
    def exit_code(self) -> int:
        """1 where something looks like a defect, else 0."""
        return 1 if self.suspects else 0
