"""What holds of a wrong mask on every failing case where no rule says which pairs are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.predicate import visible_parts
from flashverify.diagnosis.conditions import in_words
from flashverify.diagnosis.places import PLACES, region_of
from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.masks.counted import KINDS
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.hidden import hidden_by, hidden_words
from flashverify.diagnosis.readings.said import Said, listed

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.counted import Counted, Mask

__all__ = ["coarsely"]

_FEWEST = 3
"""Cases with a wrong mask on which a statement holds, at least."""
_SHARE = 0.7
"""Of the pairs of a case, the largest share that a place is named for."""
_NAMES = {"o": "O", "dv": "dV", "dq": "dQ", "dk": "dK"}
_VERBS = {
    (True, False, False): ("{see} {hidden} and {miss} none that the mask shows",),
    (False, True, False): ("{miss} keys that the mask shows, and no hidden key enters",),
    (False, False, True): ("{count} keys more than once, and {miss} none",),
    (True, True, False): ("{miss} keys that the mask shows and {see} {hidden}",),
    (False, True, True): (
        "{miss} keys that the mask shows and {count} others more than once, and no hidden key enters",
    ),
}


def coarsely(found: list[Counted]) -> list[Said]:
    """One statement for the outputs that are wrong alike: which kinds of pairs are wrong, and the smallest place that holds them all."""
    told: dict[str, tuple[list[str], int]] = {}
    for name in _NAMES:
        having = [each for each in found if name in each.masks and each.masks[name].wrong]
        if len(having) < _FEWEST or not tested_on([each.scene for each in having]):
            continue
        if not all(each.of_mask(name) for each in having):
            continue
        words = _words(having, name)
        if words:
            told.setdefault(words, ([], len(having)))[0].append(name)
    return [Said(_conjugated(words, names), cases, part=True) for words, (names, cases) in told.items()]


def _conjugated(words: str, names: list[str]) -> str:
    several = len(names) > 1
    verbs = {"miss": "miss" if several else "misses", "see": "see" if several else "sees"}
    return f"{listed([_NAMES[n] for n in names])} " + words.format(count="count" if several else "counts", **verbs)


def _words(having: list[Counted], name: str) -> str:
    masks = [(each.scene, each.masks[name]) for each in having]
    kinds = tuple(any(bool(mask.of(kind).any()) for _, mask in masks) for kind in KINDS)
    if kinds not in _VERBS:
        return ""
    words = _VERBS[kinds][0].replace("{hidden}", _hidden(masks))
    blocks = "; wrong are whole blocks of the pattern" if all(_in_whole_blocks(*each) for each in masks) else ""
    place = _smallest_place(masks)
    if place is not None:
        where = f", {in_words((place,))}"
    else:
        where = ", only behind the first head of the first sequence" * all(_first_is_right(*each) for each in masks)
    return words + blocks + where


def _first_is_right(scene: Scene, mask: Mask) -> bool:
    return scene.case.batch * scene.case.heads_q > 1 and not bool(_wrong(mask)[0, 0].any())


def _hidden(masks: list[tuple[Scene, Mask]]) -> str:
    """The hidden keys that enter, by the part of the mask that hides them where it is one."""
    having = [(scene, mask.surplus) for scene, mask in masks if bool(mask.surplus.any())]
    for part in visible_parts(having[0][0].case) if having else ():
        if hidden_words(part) != hidden_words("") and all(
            part in visible_parts(scene.case) and not bool((wrong & ~hidden_by(scene, part)).any())
            for scene, wrong in having
        ):
            return hidden_words(part)
    return "hidden keys"


def _wrong(mask: Mask) -> Tensor:
    return mask.surplus | mask.missing | mask.doubled


def _in_whole_blocks(scene: Scene, mask: Mask) -> bool:
    """Whether a block of the pattern is wrong in every pair that the rest of the mask shows, or in none."""
    blocks = scene.case.mask.blocks
    if blocks is None or scene.case.mask.packed is not None:
        return False
    rest = torch.ones_like(mask.read)
    for name, part in visible_parts(scene.case).items():
        rest = rest if name == "blocks" else rest & part
    asked, wrong = mask.read & rest, _wrong(mask)
    if bool((wrong & ~asked).any()) or scene.case.mask.prefix_lengths is not None:
        return False
    row, key = torch.arange(asked.shape[2]) // blocks.rows, torch.arange(asked.shape[3]) // blocks.keys
    number = (row[:, None] * (int(key[-1]) + 1) + key).flatten()
    some, right = (
        torch.zeros(*asked.shape[:2], int(number.max()) + 1, dtype=torch.int64).index_add(
            -1, number, x.flatten(2).long()
        )
        for x in (wrong, asked & ~wrong)
    )
    return not bool(((some > 0) & (right > 0)).any())


def _smallest_place(masks: list[tuple[Scene, Mask]]) -> Condition | None:
    """The smallest place that holds every wrong pair of every case, a part of what is read on three of them; None where there is none."""
    best, least = None, _SHARE
    for place in PLACES:
        shares = []
        for scene, mask in masks:
            region = region_of(scene, (place,))
            if region.channels is not None or bool((_wrong(mask) & ~region.pairs).any()):
                break
            seen = visible_of(scene) | mask.surplus
            shares.append(float((seen & region.pairs).double().sum() / seen.double().sum()))
        else:
            parts = [share for share in shares if share < 1.0]
            mean = sum(shares) / len(shares)
            if len(parts) >= _FEWEST and mean < least:
                best, least = place, mean
    return best
