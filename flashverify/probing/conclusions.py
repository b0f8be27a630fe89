"""What was concluded of a subject so far: fields, suspects, and what remains open."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.case.supports import Supports
from flashverify.describe.fields import value_text
from flashverify.probing.record import Suspect
from flashverify.probing.words import case_text
from flashverify.subjects.interface import Contract

if TYPE_CHECKING:
    from flashverify.probing.answers import Loaded
    from flashverify.probing.record import FormRecord
    from flashverify.probing.words import Refusal, Words

__all__ = ["Conclusions"]


@dataclass(slots=True, kw_only=True, eq=False)
class Conclusions:
    """Everything that the answer is made of.

    Attributes:
        loaded: the subject as it declares itself.
        base: words of the plainest case that runs.
        values: inferred fields by (`supports`, `contract` or `form`, name).
        why: what shows them.
        disputed: fields whose inferred value contradicts the declared one, which no code to paste takes over.
        confirmed: declared fields that nothing refuted, which trials alone cannot infer.
        form_refuted: a case refuted the form that the author declares.
        form_records: the forms, by dtype.
        suspects: what looks like a defect.
        refusals: cases that no field leaves out.
        notes, undecided: in words.
        held: promises that only the author can make.
        judged: drawn cases that were judged.
        failed: texts of those that raised or were wrong.
        silent: by the reason why the declared `Supports` refuses it, a case that ran nevertheless and was wrong, and how wrong.
    """

    loaded: Loaded
    base: Words = field(default_factory=dict)
    values: dict[tuple[str, str], Any] = field(default_factory=dict)
    why: dict[tuple[str, str], str] = field(default_factory=dict)
    disputed: set[tuple[str, str]] = field(default_factory=set)
    confirmed: set[tuple[str, str]] = field(default_factory=set)
    form_refuted: bool = False
    form_records: list[FormRecord] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    judged: int = 0
    failed: list[str] = field(default_factory=list)
    silent: dict[str, tuple[str, str]] = field(default_factory=dict)

    def settled(self, of: str, *names: str) -> None:
        """Fields that were asked for and have their defaults where nothing else was inferred."""
        defaults = {f.name: f.default for f in dataclasses.fields({"supports": Supports, "contract": Contract}[of])}
        for name in names:
            self.values.setdefault((of, name), defaults[name])

    def dispute(self, name: str, sentence: str, shown: Words | str) -> bool:
        """Whether the author declares another value of a field of `Contract` than was inferred, which looks like a defect.

        Args:
            name: of the field.
            sentence: what was seen.
            shown: a case that shows it, as in `suspect`.
        """
        declared = self.loaded.declared["contract"][name]
        known = ("contract", name) in self.values
        agrees = not known or value_text(self.values["contract", name]) == declared
        if not self.stated("contract") or agrees or declared == "None":
            return False
        self.disputed.add(("contract", name))
        self.suspect(name, f"{sentence}, where {name}={declared} is declared", shown)
        return True

    def infer(self, of: str, name: str, value: Any, why: str = "") -> None:
        """Notes the value of a field."""
        self.values[of, name] = value
        self.why[of, name] = why

    def suspect(self, what: str, sentence: str, seen: Words | str | None = None, *, declare: str = "") -> None:
        """Notes what looks like a defect; the same thing is noted once.

        Args:
            what: it concerns.
            sentence: what was seen.
            seen: words of the case that shows it, beside those of the base, or its text.
            declare: what an author who means it has to declare.
        """
        case = seen if isinstance(seen, str) else "" if seen is None else case_text(self.base | seen)
        if any(each.what == what for each in self.suspects):
            return
        self.suspects.append(Suspect(what=what, sentence=sentence, case=case, declare=declare))

    def stated(self, of: str) -> bool:
        """Whether the author declared it."""
        return of in self.loaded.explicit

    def renamed(self, suspect: Suspect, **changes: str) -> None:
        """Replaces what is said of a suspect."""
        self.suspects[self.suspects.index(suspect)] = msgspec.structs.replace(suspect, **changes)
