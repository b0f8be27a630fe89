"""What a relation declares of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.checks.spec import ErrorClass, Question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict

__all__ = ["RelationSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationSpec(Question):
    """A relation between a problem's outputs and another's, or among themselves; its name is the error class.

    Attributes:
        title: its failure in words, as in `ErrorClass`.
        sentence: what holds of a correct subject.
        run: failing verdicts; None where the relation says nothing of the pass.
        exact: it holds bit for bit for a subject that promises the bits of a repeated pass, otherwise within both bounds.
        oracle_free: it needs no oracle of N^2 work, so that it is asked at any size.
    """

    title: str
    sentence: str
    run: Callable[[Ground], Iterator[Verdict] | None]
    exact: bool = False
    oracle_free: bool = False

    @property
    def error(self) -> ErrorClass:
        """The class of its failures."""
        return ErrorClass(self.name, self.title, f"it does not hold that {self.sentence}")
