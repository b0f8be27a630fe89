"""Several outputs of a GPU compared in the operations of one, with one wait for all of their statistics.

Each output is a row of a table, filled up to the longest one with elements of which nothing is asked. An output that is not right in
every element is compared again by itself (`compare_output`), which says what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.judge.compare import (
    Comparison,
    compare_output,
    plainly_right,
    right_elements,
    statistics,
    without_statistics,
)
from flashverify.judge.summary import unravel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from flashverify.numerics.result import OutputBound

__all__ = ["Question", "answers_if_wrong", "compare_outputs", "compared_in_one_table"]

_MOST = 1 << 20
"""Elements of an output up to which its quantiles are those of all ratios: the limit of a table's row."""
_TABLE = 1 << 23
"""Elements of a table, some dozens of which are held at once in float64."""
_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One output as `compare_output` takes it."""

    output: str
    got: torch.Tensor
    expected: torch.Tensor
    bound: OutputBound
    mode: str
    taint: torch.Tensor | None = None
    pinned: torch.Tensor | None = None
    pinned_value: float = 0.0
    undefined: torch.Tensor | None = None
    exact: Callable[[], torch.Tensor] | None = None

    def answer(self) -> Comparison:
        """The comparison of this output by itself."""
        return compare_output(
            self.output,
            self.got,
            self.expected,
            self.bound,
            mode=self.mode,
            taint=self.taint,
            pinned=self.pinned,
            pinned_value=self.pinned_value,
            undefined=self.undefined,
            exact=self.exact,
        )

    def answer_if_wrong(self) -> Comparison:
        """A comparison without statistics where every element is right, else `answer`."""
        given = (self.output, self.got, self.expected, self.bound)
        right = plainly_right(*given, mode=self.mode, pinned=self.pinned, pinned_value=self.pinned_value)
        return self.answer() if right is None else right


def compare_outputs(questions: Sequence[Question]) -> list[Comparison]:
    """What `compare_output` says of each: together where they are of a GPU and fit a table."""
    found: list[Comparison] = []
    for group in _tables(questions):
        found += compared_in_one_table(group) if len(group) >= _FEWEST else [question.answer() for question in group]
    return found


def answers_if_wrong(questions: Sequence[Question]) -> list[Comparison]:
    """What `answer_if_wrong` says of each; a GPU is waited for once."""
    import torch

    if not questions or not all(question.got.is_cuda for question in questions):
        return [question.answer_if_wrong() for question in questions]
    rights = [right_elements(q.got, q.expected, q.bound, q.pinned, q.pinned_value).all() for q in questions]
    return [
        without_statistics(q.output, q.mode, q.got.numel()) if right else q.answer()
        for q, right in zip(questions, torch.stack(rights).tolist(), strict=True)
    ]


def _tables(questions: Sequence[Question]) -> Iterator[list[Question]]:
    """Questions one after the other that fit a table; one that fits none is alone."""
    group: list[Question] = []
    longest = 0
    for question in questions:
        size = question.got.numel()
        fits = 0 < size <= _MOST and question.got.is_cuda
        if group and not (fits and (len(group) + 1) * max(longest, size) <= _TABLE):
            yield group
            group, longest = [], 0
        group, longest = [*group, question], max(longest, size)
        if not fits:
            yield group
            group, longest = [], 0
    if group:
        yield group


def compared_in_one_table(questions: Sequence[Question]) -> list[Comparison]:
    """What `compare_outputs` says of outputs of one device, each of at least one element."""
    import torch

    table = _Table(questions)
    x = table.rows([q.got for q in questions], 0.0).double()
    expected, error = (
        table.rows([_wide(y) for y in part], 0.0)
        for part in ([q.expected for q in questions], [q.bound.self_error for q in questions])
    )
    bound = table.rows([q.bound.bound for q in questions], torch.inf)
    may, flip, must, vague = (
        table.flags([getattr(q.bound, name) for q in questions])
        for name in ("may_overflow", "may_flip", "must_overflow", "uninformative")
    )
    free, total = bound == torch.inf, bound + error
    left_open = [_either(q.taint, q.undefined) for q in questions]
    free = free if not any(mask is not None for mask in left_open) else free | table.flags(left_open)
    wrong_pins, judged = None, ~free
    if any(q.pinned is not None for q in questions):
        pinned, judged = _pinned(table, questions, x, left_open, free)
        wrong_pins = pinned
    difference = x - expected
    signed = (difference / total).masked_fill_(difference == 0, 0.0)
    size = x.abs()
    numeric = judged & (size < torch.inf)
    allowed = (may & (torch.sign(x) == torch.sign(expected))) | flip
    ratio = torch.where(numeric, signed.abs(), 0.0)
    wrong = (judged & (torch.isnan(x) | ((size == torch.inf) & ~allowed))) | (numeric & must) | ~((ratio <= 1) | must)
    wrong = wrong if wrong_pins is None else wrong | wrong_pins
    inside = numeric & ~(may | must)
    telling = judged & ~(expected.abs() <= total)
    kept = torch.where(inside, signed.clamp(-1, 1), 0.0)
    amounts = torch.stack([kept[number, :length].sum() for number, length in enumerate(table.lengths)])
    counts = torch.stack([judged, free, vague & judged, inside, telling, wrong]).sum(2)
    numbers = _numbers(ratio, judged, amounts, counts)
    return [
        question.answer() if row[-1] else _right(question, table.longest - length, row)
        for question, length, row in zip(questions, table.lengths, numbers, strict=True)
    ]


def _wide(x: torch.Tensor) -> torch.Tensor:
    import torch

    return x if x.dtype == torch.float64 else x.double()


class _Table:
    """The outputs as rows of one length."""

    def __init__(self, questions: Sequence[Question]) -> None:
        import torch

        self.shapes = [question.got.shape for question in questions]
        self.lengths = [question.got.numel() for question in questions]
        self.longest = max(self.lengths)
        self._no = torch.zeros((), dtype=torch.bool, device=questions[0].got.device)
        self._ends: dict[tuple[torch.dtype, float], list[torch.Tensor]] = {}

    def rows(self, values: Sequence[torch.Tensor], fill: float) -> torch.Tensor:
        """Tensors of the shapes of the outputs as rows, in the dtype that holds all of them."""
        import torch

        ends, parts = self._filling(values[0], fill), []
        for value, shape, end in zip(values, self.shapes, ends, strict=True):
            parts += [(value if value.shape == shape else value.expand(shape)).reshape(-1), end]
        return torch.cat(parts).view(len(values), self.longest)

    def _filling(self, like: torch.Tensor, fill: float) -> list[torch.Tensor]:
        """What fills up each row, of the dtype of a tensor."""
        if (like.dtype, fill) not in self._ends:
            end = like.new_full((self.longest - min(self.lengths),), fill)
            self._ends[like.dtype, fill] = [end[: self.longest - length] for length in self.lengths]
        return self._ends[like.dtype, fill]

    def flags(self, masks: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Bool masks that broadcast to the outputs as rows; None is nowhere true."""
        return self.rows([self._no if mask is None else mask for mask in masks], 0.0)


def _either(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    return second if first is None else first if second is None else first | second


def _pinned(
    table: _Table,
    questions: Sequence[Question],
    x: torch.Tensor,
    left_open: Sequence[torch.Tensor | None],
    free: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements that differ from the value that a contract fixes, and those that are judged by their bound."""
    import torch

    fixed = table.flags([question.pinned for question in questions])
    values = torch.tensor([[question.pinned_value] for question in questions], dtype=x.dtype).to(x.device)
    asked = fixed if not any(mask is not None for mask in left_open) else fixed & ~table.flags(left_open)
    return asked & (x != values), ~(free | fixed)


def _numbers(
    ratio: torch.Tensor, judged: torch.Tensor, amounts: torch.Tensor, counts: torch.Tensor
) -> list[list[float]]:
    """By row: amount, median, 99th percentile, worst ratio, its place, and the counts; in one transfer."""
    import torch

    last = counts[0] - 1
    places = torch.stack((last.div(2, rounding_mode="floor"), (99 * last).div(100, rounding_mode="floor")), 1)
    at = ratio.argmax(1, keepdim=True)
    ordered = ratio.masked_fill(~judged, float("nan")).sort(1).values
    parts = (amounts.unsqueeze(1), ordered.gather(1, places.clamp_(min=0)), ratio.gather(1, at), at, counts.mT)
    found: list[list[float]] = torch.cat([part.double() for part in parts], 1).tolist()
    return found


def _right(question: Question, filled: int, row: list[float]) -> Comparison:
    amount, median, p99, worst, at, judged, free, vague, summed, telling, _ = row
    place = unravel(int(at), question.got.shape)
    summary = (worst, place, median, p99) if judged else (0.0, (), 0.0, 0.0)
    counts = (int(free) - filled, int(vague), int(telling))
    return Comparison(
        statistics(
            question.output, question.mode, question.got.numel(), counts, summary, amount / summed if summed else None
        ),
        (),
    )
