"""Which questions a fuzzed case is asked: one of each slot, within four passes of the kernels; one case in three is asked about state on top.

Each question of a slot gets a number from the case's text and its own name, and the largest number wins. A new question so takes its
share from each of the others, and leaves every other case with the question that it had.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.checks.spec import Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.case import Case
    from flashverify.checks.spec import CheckSpec, Question

__all__ = ["BUDGET", "Dealt", "deal"]

BUDGET = 4
"""Passes of the subject for a fuzzed case, the base pass among them and a question about state not."""
_SPARE_IN = 4
"""The spare slot is used for one case in so many: its questions cost as much as everything else."""
_ADDRESSES_IN = 2
"""The slot for addresses is used for one in so many of the cases that ask no spare question."""
_STATE_IN = 3
"""A question about what is kept between calls is put to one case in so many: each key of a cache is another question, and 50 cases must reach all."""

Candidate = tuple["CheckSpec", "Question"]


@dataclass(frozen=True, slots=True)
class Dealt:
    """What a fuzzed case is asked.

    Attributes:
        questions: by check the names of its questions, for every check that has some.
        spare: (check, question) pairs that give way where the sanitizer needs a pass to fill undefined lanes.
    """

    questions: dict[str, tuple[str, ...]]
    spare: tuple[tuple[str, str], ...]


def deal(case: Case, specs: Sequence[CheckSpec]) -> Dealt:
    """The questions of a fuzzed case.

    The spare question goes first, then the padding, then the question about equal bits, as far as the budget reaches. One about
    equal bits that takes two passes leaves no room for a spare one, and gives way to the sanitizer as that would. The question about
    addresses takes the pass of the spare one in half of the cases without one.

    Args:
        case: its text draws the questions; those that it does not call for are no candidates, but for the spare slot, whose
            questions then cost nothing.
        specs: of the checks.
    """
    text = str(case)
    padding, same_bits, fill = (_draw(text, slot, case, specs) for slot in (Slot.PADDING, Slot.SAME_BITS, Slot.FILL))
    spare: Candidate | None = None
    takes_spare = same_bits is not None and same_bits[1].cost(case) > 1
    if not takes_spare and _number(text, "spare") % _SPARE_IN == 0:
        spare = _draw(text, Slot.SPARE, case, specs)
    gives_way = same_bits if takes_spare else spare
    far: Candidate | None = None
    if gives_way is None and _number(text, "addresses") % _ADDRESSES_IN == 0:
        far = gives_way = _draw(text, Slot.ADDRESSES, case, specs)
    left = BUDGET - 1
    kept: list[Candidate] = []
    for candidate in (spare, padding, same_bits, far):
        if candidate is not None and candidate[1].cost(case) <= left:
            left -= candidate[1].cost(case)
            kept.append(candidate)
    state = _draw(text, Slot.STATE, case, specs) if _number(text, "state") % _STATE_IN == 0 else None
    kept += [candidate for candidate in (fill, state) if candidate is not None]
    questions = {
        spec.name: tuple(question.name for owner, question in kept if owner is spec) for spec in specs if spec.questions
    }
    return Dealt(questions, () if gives_way is None else ((gives_way[0].name, gives_way[1].name),))


def _draw(text: str, slot: Slot, case: Case, specs: Sequence[CheckSpec]) -> Candidate | None:
    """The candidate of the slot with the largest number."""
    candidates = [
        (spec, question)
        for spec in specs
        for question in spec.questions
        if question.slot is slot and (slot is Slot.SPARE or question.stands(case))
    ]
    return max(candidates, key=lambda pair: _chance(text, *pair), default=None)


def _chance(text: str, spec: CheckSpec, question: Question) -> int:
    """The largest of as many numbers as the question has chances."""
    name = f"{spec.name}:{question.name}"
    return max(_number(text, name if chance == 0 else f"{name}:{chance}") for chance in range(question.weight))


def _number(text: str, name: str) -> int:
    """64 bits that depend on both, evenly spread."""
    return int.from_bytes(hashlib.blake2b(f"{name}\0{text}".encode(), digest_size=8).digest())
