"""Conditions that separate cases on which something holds from those on which it does not, the simplest first.

Importing this module loads no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from flashverify.diagnosis.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flashverify.diagnosis.features import Value

    Features = Mapping[str, Value]

__all__ = ["Rule", "rules", "single"]

_MODULI = (8, 16, 32, 64, 128)
_SIZES = ("seq_q", "seq_k")
_ROOMS = ("room_q", "room_k")
"""Of the tensors: the lengths of sequences are said where both fit."""
_DIMS = ("dim_qk", "dim_v")
_ORDERED = (("seq_q", "seq_k"), ("dim_qk", "dim_v"), ("longest_prefix", "seq_q"), ("longest_prefix", "seq_k"))
_SHORTEST = ("least_rows", "least_keys")
"""Lengths of the shortest sequence, about which a kernel seldom asks more than whether it is empty."""
_ONLY_WORDS = {
    "given_scale": 1.4,
    "edits": 1.6,
    "padding": 1.4,
    "backward": 1.4,
    "do": 1.4,
    "layout": 1.3,
    "window_left_given": 1.07,
    "window_right_given": 1.07,
    "aligned": 1.05,
    "transposed": 1.05,
    "group_power": 1.15,
    "lengths_alike": 1.25,
    "room_filled": 1.2,
    "last_pages": 1.15,
    "both_directions": 1.1,
    "blocks.each": 1.1,
    "selection.each": 1.1,
}
"""Features that a kernel seldom looks at, or that say more than another one, and what they cost."""
_OF_ROOM = 0.35
_LEAST = 1e-3
"""Size of a number of the values, other than 0, below which no kernel asks for it."""
_MOST = 400
_PAIRED = 160
_TRIPLED = 40


@dataclass(frozen=True, slots=True)
class Rule:
    """A conjunction of conditions and how far it is from the simplest.

    Attributes:
        conditions: all must hold.
        cost: 0 for none; about 1 for each condition.
    """

    conditions: tuple[Condition, ...]
    cost: float

    def of(self, features: Features) -> bool | None:
        """Whether all conditions hold; None where the features do not say."""
        found = [each.of(features) for each in self.conditions]
        return False if False in found else None if None in found else True


def rules(positive: Sequence[Features], negative: Sequence[Features]) -> list[Rule]:
    """Conjunctions that hold for every positive case and for no negative one, the simplest first; at most three conditions.

    Args:
        positive: features of the cases on which they must hold, at least one.
        negative: features of those on which they must not.
    """
    if not negative:
        return [Rule((), 0.0)]
    everything = (1 << len(negative)) - 1
    found: dict[tuple[int, str], tuple[float, Condition, int]] = {}
    for cost, each in single(positive, negative):
        refused = sum(1 << n for n, features in enumerate(negative) if not each.of(features))
        if refused:
            key = (refused, str(each))
            if key not in found or cost < found[key][0]:
                found[key] = (cost, each, refused)
    alone = sorted(found.values(), key=lambda x: (x[0], str(x[1])))
    answers = [Rule((each,), cost) for cost, each, refused in alone if refused == everything]
    for size, most in ((2, _PAIRED), (3, _TRIPLED)):
        if size == 3 and answers:
            break
        useful = sorted(
            (x for x in alone if x[2] != everything), key=lambda x: x[0] + 0.25 * (everything ^ x[2]).bit_count()
        )[:most]
        for chosen in combinations(useful, size):
            union = 0
            for _, _, refused in chosen:
                union |= refused
            if union == everything:
                cost = sum(c for c, _, _ in chosen) + 0.3 * (size - 1)
                answers.append(Rule(tuple(sorted((each for _, each, _ in chosen), key=str)), cost))
    return sorted(answers, key=lambda rule: (rule.cost, len(rule.conditions), str(rule.conditions)))[:_MOST]


def single(positive: Sequence[Features], negative: Sequence[Features]) -> list[tuple[float, Condition]]:
    """Conditions that hold for every positive case, with their costs."""
    return [(c, each) for c, each in _conditions(positive, negative) if all(each.of(features) for features in positive)]


def _conditions(positive: Sequence[Features], negative: Sequence[Features]) -> Iterator[tuple[float, Condition]]:
    """Conditions that may hold for every positive case, with their costs."""
    names = dict.fromkeys(name for features in positive for name in features)
    for name in names:
        values = [features[name] for features in positive if name in features]
        others = {features[name] for features in negative if name in features}
        if len(values) < len(positive) or not others:
            continue
        if isinstance(values[0], str):
            yield from _words(name, {str(v) for v in values}, {str(v) for v in others})
        else:
            numbers = [v for v in values if not isinstance(v, str)]
            yield from _numbers(name, numbers, sorted(v for v in others if not isinstance(v, str)))
    for a, b in _ORDERED:
        if a in names and b in names:
            for sign, cost in ((">", 1.0), ("<", 1.0), ("==", 1.1), ("!=", 1.1), (">=", 1.2), ("<=", 1.2)):
                yield cost, Condition(a, sign, b)


def _words(name: str, values: set[str], others: set[str]) -> Iterator[tuple[float, Condition]]:
    base = _ONLY_WORDS.get(name, 1.0)
    if len(values) == 1:
        (value,) = values
        yield base + (0.1 if value == "no" else 0.0), Condition(name, "==", value)
    for other in sorted(others - values):
        yield base + (-0.05 if other == "no" and values != {"yes"} else 0.05), Condition(name, "!=", other)


def _numbers(name: str, values: list[int | float], others: list[int | float]) -> Iterator[tuple[float, Condition]]:
    low, high = min(values), max(values)
    whole = all(isinstance(v, int) for v in (*values, *others))
    if whole and low == high:
        cost = 1.0 if name in _DIMS else 1.15 if name.startswith("launch.") or name == "page_size" else 1.6
        cost = 1.05 if name in _SHORTEST and low == 0 else cost
        yield cost, Condition(name, "==", low)
    base = 1.1 if whole else 1.3
    base += 0.2 if name in _SHORTEST else _OF_ROOM if name in _ROOMS else 0.0
    below = [v for v in others if v < low]
    above = [v for v in others if v > high]
    for n, v in enumerate(below):
        for cost, t in _thresholds(v, below[n + 1] if n + 1 < len(below) else low, whole=whole).items():
            yield base + cost, Condition(name, ">=", t)
    for n, v in enumerate(above):
        for cost, t in _thresholds(above[n - 1] if n else high, v, whole=whole).items():
            yield base + cost, Condition(name, "<", t)
    if name in (*_SIZES, *_DIMS, *_ROOMS) and whole:
        cost = 1.15 + (_OF_ROOM if name in _ROOMS else 0.0)
        for modulus in _MODULI:
            yield cost, Condition(name, "!=", 0, modulus)
            yield cost, Condition(name, "==", 0, modulus)


def _thresholds(low: int | float, high: int | float, *, whole: bool) -> dict[float, int | float]:
    """Numbers t with low < t <= high by their cost: the most natural one and both ends."""
    cost, t = _natural(low, high, whole=whole)
    ends: dict[float, int | float] = {0.25: int(low) + 1, 0.26: int(high)} if whole else {}
    if not whole and abs(high - low) > 0.2 * max(abs(high), abs(low)):
        ends = {0.25: float(f"{low + 0.05 * (high - low):.3g}"), 0.26: float(f"{high - 0.05 * (high - low):.3g}")}
    found = {cost: t} | {c: end for c, end in ends.items() if end != t}
    return {c: end for c, end in found.items() if whole or end == 0 or abs(end) >= _LEAST}


def _natural(low: int | float, high: int | float, *, whole: bool) -> tuple[float, int | float]:
    """The most natural number t with low < t <= high, and how unnatural it is: what is at least t is more than low."""
    if not whole:
        for size in (0.0, 1.0, 10.0, 16.0, 32.0, 64.0, 100.0, 256.0, 1000.0, 1e4, 2.0, 4.0, 8.0, 20.0, 50.0):
            for t in (size, -size):
                if low < t <= high:
                    return 0.0, t
        return 0.2, (low + high) / 2
    low, high = int(low), int(high)
    for cost, numbers in (
        (0.0, (2, 64, 128, 256, 32, 16, 65, 129, 257, 33, 17, 8, 4, 512)),
        (0.02, range(low // 16 * 16, high + 1, 16)),
        (0.02, range(low // 16 * 16 + 1, high + 1, 16)),
    ):
        for t in numbers:
            if low < t <= high:
                return cost, t
    return 0.1, high
