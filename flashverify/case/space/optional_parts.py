"""Which optional parts a case has: a mask, modifications of the logits, dropout, pages. Plain stays the most likely."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.masks.mask import PARTS
from flashverify.case.masks.together import stand_together
from flashverify.case.modifiers.logits import LOGIT_MODIFIERS
from flashverify.case.space.sampling import one_in, sampled_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.masks.part import Role
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = [
    "alignments",
    "all_extras",
    "all_parts",
    "block_sizes",
    "combine",
    "draw_extras",
    "draw_parts",
    "extra_masks",
    "reachable",
]

_NUMBER = (0,) * 6 + (1,) * 5 + (2,) * 6 + (3,) * 3
"""How many different extras a case has: 1.3 on average, so that a given pair of eight stands in one case in 35."""

_BLOCKS = ((1, 1), (1, 1), (2, 2), (1, 2), (4, 4), (4, 1), (3, 2), (8, 8), (4, 8))
"""Rows and keys of a block, in units of the least one."""


def _named(role: Role, supports: Supports) -> list[str]:
    """The mask parts of the subject with this role, from plain to wild."""
    return [part.name for part in PARTS if part.role == role and part.name in supports.masks]


def extra_masks(supports: Supports) -> list[str]:
    """The mask parts that may stand with any band, tree or length, those that the subject cannot have alone left out."""
    needs = {part.name: set(part.needs) for part in PARTS}
    usable = set(supports.masks) if supports.combine_masks else set()
    return [name for name in _named("extra", supports) if needs[name] <= usable]


def _extras(supports: Supports) -> list[str]:
    """The subject's optional parts besides bands, trees and lengths, from plain to wild."""
    logits = [modifier.name for modifier in LOGIT_MODIFIERS if modifier.name in supports.logits]
    return [*logits, *(["dropout"] if supports.dropout else []), *extra_masks(supports)]


def all_parts(supports: Supports) -> list[frozenset[str]]:
    """Every set of bands, tree and lengths that the subject has, plain first; of a subject with extras plain more than once."""
    orders, bands, lengths = (_named(role, supports) for role in ("order", "band", "lengths"))
    main: list[tuple[str, ...]] = [(), *((name,) for name in orders + bands)]
    rich = bool(_extras(supports))
    if not supports.combine_masks:
        return [frozenset(parts) for parts in ((),) * 2 * rich + (*main, *((p,) for p in lengths))]
    more = [(), *((p,) for p in lengths), *([tuple(lengths)] if len(lengths) > 1 else [])]
    main += [(order, band) for order in orders for band in bands if stand_together(supports, order, band)]
    if "tree" in orders:
        main += [("tree", *beside) for beside in dict.fromkeys(_beside_tree(supports)) if "causal" in beside]
    if rich:
        main = [(), (), *main, *main[1:2]]
        more = [*((),) * 3, *more, *more[1:2]]
    return [frozenset(a + b) for b in more for a in main]


def _beside_tree(supports: Supports) -> list[tuple[str, ...]]:
    """What of causal and the bands stands beside a tree: in half of the draws nothing."""
    if not supports.banded_trees:
        return [()]
    causal, bands = (_named(role, supports) for role in ("order", "band"))
    alone = [(name,) for name in (*causal, *bands) if name != "tree"]
    found = [*alone, *(("causal", band) for band in bands if "causal" in causal)]
    return [*((),) * max(len(found), 1), *found]


def draw_parts(draw: Draw, supports: Supports) -> frozenset[str]:
    """Which bands, tree and lengths the mask has: none, one, or several that may stand together."""
    orders, bands, lengths = (_named(role, supports) for role in ("order", "band", "lengths"))
    rich = bool(_extras(supports))
    if not supports.combine_masks:
        return frozenset(draw(sampled_from([*((),) * (1 + 2 * rich), *((p,) for p in orders + bands + lengths)])))
    parts = set(draw(sampled_from([*((),) * (1 + rich), *((p,) for p in orders + bands)])))
    parts |= {part for part in lengths if draw(one_in(4) if rich else st.booleans())}
    if "tree" in parts:
        beside = _beside_tree(supports)
        return frozenset(parts.union(draw(sampled_from(beside)) if len(beside) > 1 else ()))
    for band in bands:
        if parts.intersection(orders) and stand_together(supports, band, *parts) and draw(st.booleans()):
            parts.add(band)
    return frozenset(parts)


def all_extras(supports: Supports) -> list[frozenset[str]]:
    """Sets of extras: none in a third of them, each one alone, and every pair."""
    single = _extras(supports)
    pairs = [frozenset(pair) for pair in combinations(single, 2)]
    alone = [frozenset({name}) for name in single * 2]
    return [*(frozenset(),) * max((len(pairs) + len(alone)) // 2, 1), *alone, *pairs]


def draw_extras(draw: Draw, supports: Supports) -> frozenset[str]:
    """The extras of a case; nothing is drawn for a subject that has none."""
    single = _extras(supports)
    if not single:
        return frozenset()
    chosen: list[str] = []
    for _ in range(min(draw(sampled_from(_NUMBER)), len(single))):
        chosen.append(draw(sampled_from([name for name in single if name not in chosen])))
    return frozenset(chosen)


def combine(supports: Supports, parts: frozenset[str], extras: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Mask parts and other features that go together: packed sequences have their own lengths, and a part comes with those it needs."""
    names = extra_masks(supports)
    features, masks = extras.difference(names), [name for name in names if name in extras]
    if not supports.combine_masks and supports.required_masks:
        return frozenset(supports.required_masks), features
    if masks and not supports.combine_masks:
        return frozenset(masks[:1]), features
    parts = _with_required(supports, parts.union(masks))
    for part in PARTS:
        if part.name in parts and parts.intersection(part.excludes) and part.role == "lengths":
            parts -= {part.name}
    for part in (part for part in PARTS if part.name in parts and part.needs):
        parts = parts.union(part.needs) if stand_together(supports, *parts, *part.needs) else parts - {part.name}
    return parts, features


def _with_required(supports: Supports, parts: frozenset[str]) -> frozenset[str]:
    """The parts that may stand with those that every case has, and these."""
    required = supports.required_masks
    if not required:
        return parts
    needed = {name for part in PARTS if part.name in required for name in part.needs}
    always = frozenset(required).union(needed)
    return always.union(name for name in parts if stand_together(supports, name, *always))


def reachable(supports: Supports) -> frozenset[str]:
    """The declared parts that some case may have beside those that every case has."""
    required = supports.required_masks
    if required and not supports.combine_masks:
        return frozenset(required)
    return frozenset(name for name in supports.masks if name in _with_required(supports, frozenset({name})))


def alignments(supports: Supports, parts: frozenset[str]) -> list[frozenset[str]]:
    """What may be added to the parts for the alignment of a window that causal does not align; empty where there is none."""
    if "window" not in parts or "causal" in parts:
        return []
    added = {"top-left": frozenset[str](), "bottom-right": frozenset({"window_alignment"})}
    return [added[name] for name in added if name in supports.window_alignments]


def block_sizes(supports: Supports) -> list[tuple[int, int]]:
    """(rows, keys) of a block to choose from, from plain to wild."""
    unit = supports.block_multiple
    return [(rows * unit, keys * unit) for rows, keys in _BLOCKS]
