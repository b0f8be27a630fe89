"""Which lengths of the kinds of a worker torch would have to compile for: a batch need not draw them while it may not compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from flashverify.case.space.traced import class_of, lengths_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.case import Case
    from flashverify.case.space.traced import LengthClass

    OfKind = Callable[[int, frozenset[LengthClass]], SearchStrategy[Case]]

__all__ = ["RefusedLengths"]

_FREE = 4
"""One batch in so many draws lengths of every class: what was refused once may be compiled now, and counts as put off where it is not."""


class RefusedLengths:
    """Classes of lengths by kind: those that were judged, and those that were refused and never judged.

    Another reason of a refusal, such as other strides, says nothing of the lengths: a class of which any case was judged is never left out.
    """

    def __init__(self) -> None:
        self._refused: dict[int, set[LengthClass]] = {}
        self._judged: dict[int, set[LengthClass]] = {}
        self._kinds: dict[Case, int] = {}
        self._batches, self._every = 0, True

    def cases(self, kinds: Iterable[int], of_kind: OfKind, *, grows: bool) -> SearchStrategy[Case]:
        """Cases of a batch.

        Args:
            kinds: that are open.
            of_kind: cases of one of them without lengths of some classes.
            grows: whether torch may compile for them.
        """
        self._batches += 1
        self._kinds.clear()
        self._every = every = grows or self._batches % _FREE == 1
        drawn = {kind: self._noted(kind, of_kind(kind, frozenset(() if every else self.of(kind)))) for kind in kinds}
        return st.sampled_from(list(drawn)).flatmap(drawn.__getitem__)

    def _noted(self, kind: int, cases: SearchStrategy[Case]) -> SearchStrategy[Case]:
        def note(case: Case) -> Case:
            self._kinds[case] = kind
            return case

        return cases.map(note)

    def of(self, kind: int) -> set[LengthClass]:
        """The classes of a kind that are left out."""
        return self._refused.get(kind, set()) - self._judged.get(kind, set())

    def leaves(self, case: Case) -> bool:
        """Whether a drawn case of this batch is of a class that is left out; packed sequences may be, whatever was to be drawn."""
        kind = self._kinds.get(case)
        return kind is not None and not self._every and class_of(lengths_of(case)) in self.of(kind)

    def opened(self, kind: int, case: Case) -> None:
        """A case opens a kind."""
        self._kinds[case] = kind

    def tried(self, case: Case, *, judged: bool) -> None:
        """A case was judged, or refused; one that was not drawn here, as a neighbour of a drawn one, says nothing."""
        if (kind := self._kinds.get(case)) is not None:
            (self._judged if judged else self._refused).setdefault(kind, set()).add(class_of(lengths_of(case)))
