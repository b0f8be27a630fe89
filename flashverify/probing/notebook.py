"""What is known of a subject while it is probed: its plainest case, its conventions, and what was found so far."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.case.supports import Supports
from flashverify.case.text import parse_case
from flashverify.describe.fields import value_text
from flashverify.errors import NoVerdictError, UsageError
from flashverify.probing.answers import Failed, Lost, Seen
from flashverify.probing.questions import Assumed, Trial
from flashverify.probing.record import Suspect
from flashverify.probing.words import case_text
from flashverify.subjects.interface import Contract

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.probing.answers import Answer, Loaded
    from flashverify.probing.asking import Asker
    from flashverify.probing.questions import Question, Value
    from flashverify.probing.record import FormRecord
    from flashverify.probing.words import Refusal, Words

__all__ = ["NEAR", "Notebook", "TimeOverError"]

NEAR = 1e-3
"""Squared error beside squared size up to which outputs are about what is asked, whatever is rounded."""


_FARTHER = 100.0
"""Times that the squared error of what is asked must be that of another reading for outputs outside every bound to be taken for it."""


class TimeOverError(Exception):
    """The budget is spent."""


@dataclass(slots=True, kw_only=True, eq=False)
class Notebook:
    """The state of a probe.

    Attributes:
        asker: runs the subject.
        loaded: the subject as it declares itself.
        device: `cpu` or `cuda`.
        end: of the budget, by `time.monotonic()`.
        base: words of the plainest case that runs.
        multiple, square, most_rows: lengths that run.
        lse_base: None where no LSE is returned.
        gradients: that the backward returns.
        broken: the plainest case is wrong, so that only what raises says something.
        forms: fields of the form that explains the cases of a dtype; None where none does.
        ignored: outputs that are wrong in the plainest case, and no longer judged.
        doubtful: dtypes whose roundings look like a defect.
        form_refuted: a case refuted the form that the author declares.
        values: inferred fields by (`supports`, `contract` or `form`, name).
        disputed: fields whose inferred value contradicts the declared one, which no code to paste takes over.
        confirmed: declared fields that nothing refuted, which trials alone cannot infer.
        why: what shows them.
        silent: by the reason why the declared `Supports` refuses it, a case that ran nevertheless and was wrong, and how wrong.
        trials: questions that were asked.
    """

    asker: Asker
    loaded: Loaded
    device: str
    end: float
    base: Words = field(default_factory=dict)
    multiple: int = 1
    square: bool = False
    most_rows: int | None = None
    lse_base: str | None = "e"
    gradients: tuple[str, ...] = ()
    contiguous: bool = False
    broken: bool = False
    forms: dict[str, dict[str, Value] | None] = field(default_factory=dict)
    ignored: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    form_refuted: bool = False
    form_records: list[FormRecord] = field(default_factory=list)
    disputed: set[tuple[str, str]] = field(default_factory=set)
    confirmed: set[tuple[str, str]] = field(default_factory=set)
    values: dict[tuple[str, str], Any] = field(default_factory=dict)
    why: dict[tuple[str, str], str] = field(default_factory=dict)
    suspects: list[Suspect] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    judged: int = 0
    failed: list[str] = field(default_factory=list)
    empty_rows: list[tuple[str, str, str]] = field(default_factory=list)
    silent: dict[str, tuple[str, str]] = field(default_factory=dict)
    trials: int = 0

    def ask(self, question: Question) -> Answer | Lost:
        """The answer of the subject.

        Raises:
            TimeOverError: the budget is spent.
            NoVerdictError: the harness failed.
        """
        if time.monotonic() > self.end:
            raise TimeOverError
        self.trials += 1
        answer = self.asker.ask(question)
        if isinstance(answer, Failed):
            raise NoVerdictError(f"a question of the probe failed: {answer.kind} {answer.message}")
        return answer

    def seen(
        self, words: Words | None = None, readings: Mapping[str, Words] | None = None, *, pages_alone: bool = False
    ) -> Seen:
        """What the base case with other words shows; a case that there cannot be is one that the subject does not take.

        Args:
            words: in place of those of the base.
            readings: words that are changed once more, by the name of the reading.
            pages_alone: of a paged case, k and v are lost outside the pages.
        """
        asked = self.base | (words or {})
        try:
            case = case_text(asked)
            others = {name: case_text(asked | other) for name, other in (readings or {}).items()}
        except UsageError as error:
            return Seen(raised=f"no such case: {error}")
        return self.tried(case, others, pages_alone=pages_alone)

    def tried(
        self,
        case: str,
        readings: Mapping[str, str] | None = None,
        *,
        pages_alone: bool = False,
        form: Mapping[str, Value] | None = None,
    ) -> Seen:
        """What a case shows, as in `seen`; `form` are further fields of the form that is assumed."""
        parsed = parse_case(case)
        assumed, precision = self.assumed(parsed.dtype), parsed.precision
        if precision in self.values.get(("supports", "precisions"), ()) and precision != "ieee":
            form = {"dot": precision, **(form or {})}
        if form:
            assumed = msgspec.structs.replace(assumed, form=assumed.form | dict(form))
        question = Trial(case=case, assumed=assumed, readings=dict(readings or {}), pages_alone=pages_alone)
        answer = self.ask(question)
        if isinstance(answer, Lost):
            return Seen(raised=answer.why)
        assert isinstance(answer, Seen)
        if not self.stated("supports"):
            answer = msgspec.structs.replace(answer, refused="")
        if answer.refused and not pages_alone and answer.ran and self.verdict(answer) == "wrong":
            self.silent.setdefault(answer.refused, (case, answer.failure))
            return msgspec.structs.replace(answer, raised=f"wrong outside what is declared: {answer.refused}")
        forward = answer.ran and not {"o", "lse"} & set(answer.asked.failing)
        if forward and not answer.refused and (answer.empty.o or answer.empty.lse):
            self.empty_rows.append((answer.empty.o, answer.empty.lse, case))
        return answer

    def assumed(self, dtype: str, **more: Any) -> Assumed:
        """The conventions known so far, for cases of a dtype."""
        form = (self.forms.get(dtype) or {}) | {name: x for (of, name), x in self.values.items() if of == "form"}
        return Assumed(
            lse_base=self.lse_base or "e",
            ignored=tuple(sorted(self.ignored)),
            gradients=self.gradients or ("dq", "dk", "dv"),
            form=form,
            contiguous=self.contiguous,
            **more,
        )

    def verdict(self, seen: Seen) -> str:
        """`raises`, `right`, the name of the reading that the outputs fit instead, or `wrong`.

        Outputs outside every bound are the reading that they are by far the nearest to. Where roundings of the dtype look like a
        defect, outputs that are about right count as right.
        """
        if not seen.ran:
            return "raises"
        if seen.asked.right or self.broken:
            return "right"
        others = {name: reading for name, reading in seen.readings.items() if name != "asked"}
        for name, reading in others.items():
            if reading.right:
                return name
        nearest = min(seen.readings, key=lambda name: seen.readings[name].apart)
        near = seen.readings[nearest].apart
        if nearest == "asked":
            return "right" if near < NEAR and seen.dtype in self.doubtful else "wrong"
        return nearest if near < NEAR and seen.asked.apart > _FARTHER * near else "wrong"

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

    def lengths(self, rows: int, keys: int) -> Words:
        """Words of lengths that the subject takes, near the asked ones."""
        step = self.multiple
        rows, keys = (max(step, -(-n // step) * step) for n in (rows, keys))
        if self.most_rows is not None:
            rows = max(1, min(rows, self.most_rows))
        if self.square:
            rows = keys = max(rows, keys)
        words: Words = {"seq_q": rows, "seq_k": keys}
        if "packed" in self.base:
            words["packed"] = f"0,{rows}/0,{keys}"
        return words

    def stated(self, of: str) -> bool:
        """Whether the author declared it."""
        return of in self.loaded.explicit

    def renamed(self, suspect: Suspect, **changes: str) -> None:
        """Replaces what is said of a suspect."""
        self.suspects[self.suspects.index(suspect)] = msgspec.structs.replace(suspect, **changes)
