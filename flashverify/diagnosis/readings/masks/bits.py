"""Masks by bits, of a tree or a bitmap: keys at a place in their word, and masks that take another bit for a key's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.predicate import visible_parts, widening
from flashverify.diagnosis.readings.index_forms import forms_within
from flashverify.diagnosis.readings.masks.ends import key_of, visible_of
from flashverify.diagnosis.readings.masks.extent import Extent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Bit = Callable[[Tensor], Tensor]

__all__ = ["by_words", "masks_of_learned_bits", "masks_of_other_bits"]

_WORD = 32
_FORMS = 8
"""Functions of the place of a bit that fit one case."""
_FEWEST = 12
"""Pairs by which a place of a word tells whose bit it has."""

_SETS: tuple[tuple[str, Bit], ...] = (
    ("places 31, 63, 95, ... from the first bit on: the highest bit, the sign, of a word", lambda b: b % _WORD == 31),
    ("places 0, 32, 64, ... from the first bit on: the lowest bit of a word", lambda b: b % _WORD == 0),
    ("the upper 16 bits of a word", lambda b: b % _WORD >= 16),
    ("the lower 16 bits of a word", lambda b: b % _WORD < 16),
    ("the words of bits behind the first one", lambda b: b >= _WORD),
    ("the words of bits behind the second one", lambda b: b >= 2 * _WORD),
    ("every second word of bits", lambda b: b // _WORD % 2 == 1),
)
_OTHERS: tuple[tuple[str, Bit], ...] = (
    ("bit b % 16 of its word", lambda b: b // _WORD * _WORD + b % 16),
    ("bit b % 8 of its word", lambda b: b // _WORD * _WORD + b % 8),
    ("bit 31 - b of its word", lambda b: b // _WORD * _WORD + 31 - b % _WORD),
    ("bit b ^ 8 of its word", lambda b: b ^ 8),
    ("bit b ^ 24 of its word, the bytes in reverse", lambda b: b ^ 24),
    ("bit b ^ 1 of its word", lambda b: b ^ 1),
    ("bit b ^ 16 of its word, the halves exchanged", lambda b: b ^ 16),
    ("bit b of the other word of its pair, words 2n and 2n + 1", lambda b: b ^ _WORD),
    ("bit b of the other pair of words of its four", lambda b: b ^ (2 * _WORD)),
    ("bit b of the first word", lambda b: b % _WORD),
    ("bit b % 64 of the row", lambda b: b % (2 * _WORD)),
    ("bit b % 128 of the row", lambda b: b % (4 * _WORD)),
    ("bit b % 256 of the row", lambda b: b % (8 * _WORD)),
    ("bit b of the second word from there on", lambda b: torch.where(b >= _WORD, _WORD + b % _WORD, b)),
    ("bit b of the third word from there on", lambda b: torch.where(b >= 2 * _WORD, 2 * _WORD + b % _WORD, b)),
    ("bit b of the next word", lambda b: b + _WORD),
    ("bit b of the word before, of its own in the first", lambda b: torch.where(b >= _WORD, b - _WORD, b)),
    ("bit b + 1", lambda b: b + 1),
    ("bit b - 1", lambda b: b - 1),
)


def by_words(scene: Scene) -> Iterator[Extent]:
    """Sets of pairs by words of bits; none without a tree or a bitmap."""
    if _has_bits(scene):
        for words, bits in _SETS:
            yield Extent(
                words,
                partial(lambda s, b: visible_of(s) & (bit_of(s) >= 0) & b(bit_of(s)) & _has_bits(s), b=bits),
            )


def masks_of_other_bits() -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    """Masks in words, and as bool `[B, Hq, Sq, Sk]`, in which a key is seen where the bit of another one is set."""
    for words, other in _OTHERS:
        yield f"the mask that takes for bit b of a word {words}", partial(_moved, other=other)
    for words, by in (("later", -1), ("earlier", 1)):
        yield (
            f"the mask whose bits begin one key {words}, and hide no key before",
            partial(_moved, other=lambda b, n=by: b + n, begin=-by),  # type: ignore[misc]
        )


def masks_of_learned_bits(
    scene: Scene, effective: Tensor, read: Tensor
) -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    """Masks in words, and as bool `[B, Hq, Sq, Sk]`, in which a key is seen where the bit at another place of its word is set, learned from one case.

    Args:
        scene: the case.
        effective: bool `[B, Hq, Sq, Sk]`, its mask in effect.
        read: bool, likewise: the pairs that were read.
    """
    parts = dict(visible_parts(scene.case))
    name = next((name for name in ("bitmap", "tree") if name in parts), None)
    if name is None or scene.case.mask.packed is not None or {"bitmap", "tree"} <= parts.keys():
        return
    rest = torch.ones_like(effective)
    for other, part in parts.items():
        rest = rest if other == name else rest & part
    bit = bit_of(scene).expand(effective.shape[0], 1, *effective.shape[2:])
    part = parts[name].expand(effective.shape)
    found, told = torch.ones(_WORD, _WORD, dtype=torch.bool), torch.zeros(_WORD, dtype=torch.int64)
    count = int(bit.flatten(1).amax(1).min()) + 1  # every sequence has these bits
    for at in range(0, count // _WORD * _WORD, _WORD):
        x, d, r = (
            torch.stack([each.masked_select((bit == at + n).expand(each.shape)) for n in range(_WORD)], -1).float()
            for each in (effective, part, read & rest)
        )
        found &= (r * x).T @ (1 - d) + (r * (1 - x)).T @ d == 0
        told += r.sum(0).long()
    for form in forms_within(found, told >= _FEWEST, _FORMS):
        words = f"the mask that takes for bit b of a word bit {form.words.format('b', 'b')} of it"
        yield words, partial(_moved, other=partial(_within_word, of=form.of))


def _within_word(bit: Tensor, of: Bit) -> Tensor:
    return bit // _WORD * _WORD + of(bit % _WORD)


def bit_of(scene: Scene) -> Tensor:
    """The number of the bit that decides on each pair, `[B, 1, Sq or 1, Sk]`; negative where none does."""
    at = scene.at
    start = 0 if scene.case.mask.bitmap is not None else (at.keys - at.rows)[:, None, :, None]
    return key_of(scene) - start


def _has_bits(scene: Scene) -> bool:
    return scene.case.mask.bitmap is not None or scene.case.mask.tree is not None


def _moved(scene: Scene, other: Bit, begin: int | None = None) -> Tensor:
    """The mask by other bits; those from bit `begin` on where it is given, before which no bit hides."""
    see = visible_of(scene)
    if not _has_bits(scene):
        return see
    parts, wider = dict(visible_parts(scene.case)), widening(scene.case)
    bit = bit_of(scene).expand(see.shape[0], 1, see.shape[2], see.shape[3])
    for name in ("bitmap", "tree"):
        if name in parts:
            part = parts[name].expand(see.shape)
            key = (other(bit) - bit + torch.arange(see.shape[3])).expand(see.shape)
            inside = (key >= 0) & (key < see.shape[3])
            taken = part.gather(-1, key.clamp(0, see.shape[3] - 1)) & inside
            parts[name] = torch.where(bit >= 0, taken, part)
            if begin is not None:
                behind = (bit > scene.at.row[:, None, :, None]) & (name == "tree")  # no node sees a later one
                parts[name] = (taken | (bit < begin)) & ~behind
    found = torch.ones_like(see)
    for name, part in parts.items():
        found = found & (part | wider[name] if name in wider else part)
    return found
