"""Conditions under which a kernel is wrong, as text: `seq_q > seq_k`, `dim_qk == 128`, `seq_k % 64 != 0`, `key_tile[64] == last`.

A condition compares a feature of the case, or of a place inside it, with a number, a word, or another feature. Importing this module
loads no torch.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.diagnosis.condition_words import between, phrase
from flashverify.diagnosis.features import OF_VALUES, case_features
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from flashverify.case.case import Case
    from flashverify.diagnosis.features import Value

__all__ = ["COMPARISONS", "PLACE_FEATURES", "Condition", "holds", "in_words", "parse"]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
PLACE_FEATURES = (
    "sequence",
    "rows",
    "keys",
    "head",
    "member",
    "kv_head",
    "row",
    "key",
    "row_tile",
    "key_tile",
    "channel",
    "row_max",
    "seen",
    "distance",
    "page",
    "last_page",
)
"""Features of places. `rows` and `keys` are declared lengths of a sequence, `member` numbers the query heads of a kv head, `row_max` is
the largest logit that a row sees, `seen` the number of keys that it sees, `distance` that of a key from the row's position, `page` the number of the page in which a key lies, `last_page` whether its sequence fills that one; a tile is `first`, `later`, `last`, `partial`, the tile that its sequence does not fill, `odd` or `even`, every second tile."""

_TEXT = re.compile(r"([a-z_.]+)(?:\[(\d+)\])?(?: % (\d+))? (==|!=|>=|<=|>|<) ([-+.\w]+)")


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """One comparison.

    Attributes:
        feature: what is compared.
        comparison: a key of `COMPARISONS`.
        value: a number, a word, or the name of another feature.
        modulus: the remainder by this number is compared; 0 for the feature itself.
        tile: rows or keys of a tile, of the features that number tiles; otherwise 0.
    """

    feature: str
    comparison: str
    value: int | float | str
    modulus: int = 0
    tile: int = 0

    @property
    def is_place(self) -> bool:
        """Whether it may hold for a part of a case only."""
        return self.feature in PLACE_FEATURES

    def of(self, features: Mapping[str, Value]) -> bool | None:
        """Whether it holds for a case with these features; None where they do not say."""
        if self.is_place:
            return None
        left = features.get(self.feature)
        right = features.get(self.value, self.value) if isinstance(self.value, str) else self.value
        if left is None or (isinstance(left, str) != isinstance(right, str)):
            return None if self.feature in OF_VALUES else False
        if self.modulus:
            assert not isinstance(left, str)
            left = left % self.modulus
        return bool(COMPARISONS[self.comparison](left, right))

    def __str__(self) -> str:
        tile = f"[{self.tile}]" if self.tile else ""
        modulus = f" % {self.modulus}" if self.modulus else ""
        value = f"{self.value:g}" if isinstance(self.value, float) else self.value
        return f"{self.feature}{tile}{modulus} {self.comparison} {value}"


def parse(text: str) -> Condition:
    """The condition that `text` names.

    Raises:
        UsageError: it names none.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        accepted = "FEATURE, [TILE] or % MODULUS, a comparison, and a number, a word or a feature"
        raise UsageError(f"condition={text!r} is not accepted: {accepted}")
    feature, tile, modulus, comparison, value = found.groups()
    return Condition(feature, comparison, _value(value), int(modulus or 0), int(tile or 0))


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def holds(texts: Iterable[str], case: Case) -> bool | None:
    """Whether all conditions hold for `case`; None where that depends on places or on values of its tensors.

    Raises:
        UsageError: a text is no condition.
    """
    features = case_features(case)
    found = [parse(text).of(features) for text in texts]
    return False if False in found else None if None in found else True


def in_words(conditions: Iterable[Condition]) -> str:
    """`only where Sq > Sk and with a window`; empty for none."""
    left = list(conditions)
    phrases = []
    while left:
        each = left.pop(0)
        other = next((c for c in left if (c.feature, c.modulus) == (each.feature, 0) and _range(each, c)), None)
        if other is None:
            words = phrase(each.feature, each.comparison, each.value, modulus=each.modulus, tile=each.tile)
        else:
            left.remove(other)
            low, high = sorted((each, other), key=lambda c: c.comparison, reverse=True)
            words = between(each.feature, low.value, high.value)
        phrases.append(words)
    return f"only {' and '.join(phrases)}" if phrases else ""


def _range(a: Condition, b: Condition) -> bool:
    """Whether they are the two ends of a range of a case's numbers."""
    return not a.is_place and a.modulus == 0 and {a.comparison, b.comparison} == {">=", "<"}
