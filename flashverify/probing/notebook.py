"""What is known of a subject while it is probed: its plainest case, its conventions, and what was found so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.case.text import parse_case
from flashverify.errors import NoVerdictError, UsageError
from flashverify.probing.answers import Failed, Lost, Seen
from flashverify.probing.conclusions import Conclusions
from flashverify.probing.questions import Assumed, Trial
from flashverify.probing.words import case_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.probing.answers import Answer
    from flashverify.probing.asking import Asker
    from flashverify.probing.questions import Question, Value
    from flashverify.probing.words import Words

__all__ = ["NEAR", "Notebook", "TimeOverError"]

NEAR = 1e-3
"""Squared error beside squared size up to which outputs are about what is asked, whatever is rounded."""


_FARTHER = 100.0
"""Times that the squared error of what is asked must be that of another reading for outputs outside every bound to be taken for it."""


class TimeOverError(Exception):
    """The budget is spent."""


@dataclass(slots=True, kw_only=True, eq=False)
class Notebook(Conclusions):
    """The state of a probe: what was concluded, and what the next question takes for granted.

    Attributes:
        asker: runs the subject.
        device: `cpu` or `cuda`.
        end: of the budget, by `time.monotonic()`.
        multiple, square, most_rows: lengths that run.
        lse_base: None where no LSE is returned.
        gradients: that the backward returns.
        broken: the plainest case is wrong, so that only what raises says something.
        forms: fields of the form that explains the cases of a dtype; None where none does.
        ignored: outputs that are wrong in the plainest case, and no longer judged.
        doubtful: dtypes whose roundings look like a defect.
        empty_rows: what rows without keys held in each case that is right: O, the LSE, and its text.
        trials: questions that were asked.
    """

    asker: Asker
    device: str
    end: float
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
    empty_rows: list[tuple[str, str, str]] = field(default_factory=list)
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
        nearest = min(seen.readings, key=lambda name: seen.readings[name].of_o)
        near = seen.readings[nearest].of_o
        if nearest == "asked":
            return "right" if seen.asked.apart < NEAR and seen.dtype in self.doubtful else "wrong"
        return nearest if near < NEAR and seen.asked.of_o > _FARTHER * near else "wrong"

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
