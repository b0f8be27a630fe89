"""What the judged cases of a subject covered, and what they left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.case.case import DTYPES, LAYOUTS, REGIMES
from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import MODIFIERS
from flashverify.case.quantised.codes import CODES
from flashverify.judge.wording import evidence_text, plural
from flashverify.report.pairs import PAIRED, pairs_of, pairs_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.report.axes import Axes

__all__ = ["AxesSeen", "Row"]

_ALIGNMENTS = ("causal top-left", "causal bottom-right")
_MASKS = (*_ALIGNMENTS, *(part.name.replace("_", " ") for part in PARTS if part.name != "causal"))
_LISTED = (
    ("dtype", "Data types", DTYPES),
    ("mask", "Masks", _MASKS),
    ("modifier", "Modifiers of logits and weights", tuple(m.name.replace("_", " ") for m in MODIFIERS)),
    ("layout", "Layouts", (*LAYOUTS, "paged")),
    ("regime", "Regimes of values", REGIMES),
)
"""Axes whose values are all known, with their titles and these values."""
_MOST = 12


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: an axis, the values that cases had, and those that none had; empty where nothing can be said."""

    axis: str
    tested: str
    missing: str


@dataclass(slots=True)
class AxesSeen:
    """Judged cases by the values that they have, and their longest sequences."""

    cases: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: int = 0
    keys: int = 0

    def add(self, axes: Axes) -> None:
        """Count a judged case."""
        self.cases += 1
        self.counts.update(axes.traits)
        self.pairs.update(pairs_of(axes.traits))
        self.rows, self.keys = max(self.rows, axes.seq_q), max(self.keys, axes.seq_k)

    def extend(self, later: AxesSeen) -> None:
        """Count what was counted of other cases."""
        self.cases += later.cases
        self.counts.update(later.counts)
        self.pairs.update(later.pairs)
        self.rows, self.keys = max(self.rows, later.rows), max(self.keys, later.keys)

    def table(self, evidence: Iterable[str]) -> list[Row]:
        """The table; nothing where no case was judged.

        Args:
            evidence: what the cases ran on.
        """
        return list(self._table(sorted(set(evidence)))) if self.cases else []

    def _table(self, evidence: list[str]) -> Iterator[Row]:
        for axis, title, known in _LISTED:
            found = self._of(axis)
            order = [*(v for v in known if v in found), *sorted(found.keys() - set(known))]
            missing = [value for value in known if value not in found]
            yield Row(title, _values({v: found[v] for v in order}) or "none", _cut(missing))
        seen = [value for axis in PAIRED for value in self._of(axis)]
        if len(seen) > 1:
            met, never, apart = pairs_text(seen, self.pairs)
            cannot = f"; no case can have {_cut(apart)}" if apart else ""
            yield Row("Two of these masks and modifiers together", f"{met} pairs{cannot}", _cut(never))
        dims = self._of("head dim")
        largest = max((_number(value) for value in dims), default=0)
        yield Row("Head dims", _values(dims), f"above {largest}" if largest < 256 else "")
        groups = self._of("group")
        alone = groups.keys() <= {"1"}
        yield Row("Query heads per key head", _values(groups), "more than one" if alone else "")
        longest = f"{plural(self.rows, 'row')}, {plural(self.keys, 'key')}"
        yield Row("Longest sequence", longest, "anything longer")
        yield Row("Launch values", self._launches() or "those that the subject chooses", "")
        if codes := self._of("codes"):
            yield Row("Codes of K and V", _values(codes), ", ".join(name for name in CODES if name not in codes))
            yield Row("What shares a scale", _values(self._of("scales")), "")
        gradients = self._of("gradients")
        yield Row("Gradients", _values(gradients), "" if "with" in gradients else "the backward")
        gpu = any(name != "cpu" and not name.startswith("interpreter") for name in evidence)
        yield Row("Device", ", ".join(map(evidence_text, evidence)) or "unknown", "" if gpu else "a GPU")

    def _of(self, axis: str) -> dict[str, int]:
        """The values on an axis and their cases, numbers in their order."""
        found = {value: count for (name, value), count in self.counts.items() if name == axis}
        return dict(sorted(found.items(), key=lambda item: (_number(item[0]), item[0])))

    def _launches(self) -> str:
        values: dict[str, list[str]] = {}
        for text in self._of("launch"):
            name, _, value = text.partition("=")
            values.setdefault(name, []).append(value)
        return "; ".join(f"{name} {_cut(sorted(v, key=_number))}" for name, v in sorted(values.items()))


def _number(text: str) -> int:
    """The largest number in a text; 0 where there is none."""
    return max((int(word) for word in text.split() if word.isdecimal()), default=0)


def _values(found: dict[str, int]) -> str:
    return _cut([f"{value} ({count:,})" for value, count in found.items()])


def _cut(texts: list[str]) -> str:
    if len(texts) <= _MOST:
        return ", ".join(texts)
    half = _MOST // 2
    return ", ".join([*texts[:half], f"… {len(texts) - 2 * half} more …", *texts[-half:]])
