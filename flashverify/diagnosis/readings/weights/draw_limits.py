"""Dropout that compares the words of its draws with another limit, or takes them for other numbers: learned from the pairs that one case keeps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.readings.weights.models import DECLARED, Model
from flashverify.truth import random_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["draw_limits"]

_FEWEST, _PAIRS = 4, 24
"""Pairs that are kept, and that are dropped, and all of these, by which a limit shows."""
_TOP = 2**31
_ALL = 2**32


def _signed(w: Tensor) -> Tensor:
    return torch.where(w >= _TOP, w - _ALL, w)


def _reversed(w: Tensor, step: int) -> Tensor:
    """The groups of `step` bits of a word in reverse order."""
    found, mask = torch.zeros_like(w), 2**step - 1
    for at in range(0, 32, step):
        found = found | (((w >> at) & mask) << (32 - step - at))
    return found


class _Number(NamedTuple):
    """What is compared.

    Attributes:
        words: which it is.
        of: of the word.
        bits: how many it has.
    """

    words: str
    of: Callable[[Tensor], Tensor]
    bits: int = 32


_WORD = _Number("the word of its draw", lambda w: w)
_SIGNED = _Number("the word of its draw, taken for a number with a sign,", _signed)
_NUMBERS = (
    _WORD,
    _SIGNED,
    _Number("the magnitude of the word of its draw, taken for a number with a sign,", lambda w: _signed(w).abs(), 31),
    _Number("the word of its draw without its highest bit", lambda w: w % _TOP, 31),
    _Number("2^31 more than the word of its draw, taken for a number with a sign,", lambda w: _signed(w) + _TOP),
    _Number("the lower 24 bits of the word of its draw", lambda w: w % 2**24, 24),
    _Number("the lower 23 bits of the word of its draw", lambda w: w % 2**23, 23),
    _Number("the lower half of the word of its draw", lambda w: w % 2**16, 16),
    _Number("the lowest byte of the word of its draw", lambda w: w % 2**8, 8),
    _Number("the word of its draw with its bytes in reverse order", partial(_reversed, step=8)),
    _Number("the word of its draw with its bits in reverse order", partial(_reversed, step=1)),
    _Number("the word of its draw with its halves exchanged", partial(_reversed, step=16)),
)
_SHARES: tuple[tuple[str, Callable[[float], float]], ...] = (
    ("p", lambda p: p),
    ("(1 - p)", lambda p: 1 - p),
    ("p / 2", lambda p: p / 2),
    ("2 p", lambda p: 2 * p),
    ("p^2", lambda p: p * p),
    ("(1 - p^2)", lambda p: 1 - p * p),
    ("(1 - p)^2", lambda p: (1 - p) ** 2),
    ("sqrt(p)", lambda p: p**0.5),
    ("p (1 - p)", lambda p: p * (1 - p)),
    ("p, at most 1 / 2,", lambda p: min(p, 0.5)),
    ("p in whole 256ths", lambda p: int(p * 256) / 256),
    ("1 / 2", lambda _p: 0.5),
)
"""Shares of all values, functions of p, that may be the limit."""


def _limits(number: _Number) -> Iterator[tuple[str, Callable[[float], int]]]:
    """Limits in words, and as functions of p."""
    for words, share in _SHARES:
        yield f"{words} * 2^{number.bits}", partial(lambda p, s, n: int(s(p) * 2**n), s=share, n=number.bits)
        if number is _SIGNED:
            yield f"{words} * 2^32, taken so too", partial(lambda p, s: _wrapped(int(s(p) * _ALL)), s=share)


def _wrapped(x: int) -> int:
    return x - _ALL if x >= _TOP else x


def draw_limits(effect: Effect) -> Iterator[Model]:
    """Models of the declared weights with other pairs dropped; none without dropout, or where no number of the words tells which these are.

    A number that is compared has the kept pairs on one side of its limit and the dropped ones on the other.
    """
    drawn = _words(effect)
    if drawn is None:
        return
    share = (effect.logits - effect.scene.truth.exact_lse.unsqueeze(-1)).exp()
    read = (effect.visible & effect.asked & (share > 16 * effect.floor)).expand_as(effect.weights)
    kept = effect.weights > effect.floor / 4
    if int(read.sum()) < _PAIRS or min(int((read & kept).sum()), int((read & ~kept).sum())) < _FEWEST:
        return
    for number in _NUMBERS:
        found = number.of(drawn)
        stay, go = found[read & kept], found[read & ~kept]
        for below, (low, high) in ((True, (go.max(), stay.min())), (False, (stay.max(), go.min()))):
            for words, limit in _limits(number) if low < high else ():
                declared = number is _WORD and below and words.startswith("p *")
                if low < limit(effect.scene.case.dropout) <= high and not declared:
                    side = "below" if below else "at least"
                    said = f"dropout drops a pair where {number.words} is {side} {words}"
                    yield Model(said, DECLARED.logits, partial(_kept, number=number, limit=limit, below=below))


def _kept(effect: Effect, *, number: _Number, limit: Callable[[float], int], below: bool) -> Tensor | None:
    """What the weights are multiplied by, `[B, Hq, Sq, Sk]`."""
    drawn = _words(effect)
    if drawn is None:
        return None
    p = effect.scene.case.dropout
    dropped = (number.of(drawn) < limit(p)) == below
    return (~dropped).double() / (1.0 - p)


def _words(effect: Effect) -> Tensor | None:
    """The words of a case, int64 `[B, Hq, Sq, Sk]`, found once; None without dropout."""
    memo, scene = effect.scene.memo, effect.scene
    if not scene.case.dropout:
        return None
    if "words of draws" not in memo:
        memo["words of draws"] = random_words(
            seed=scene.problem.dropout_seed,
            offset=scene.problem.dropout_offset,
            heads=scene.case.heads_q,
            sequence=scene.at.row_sequence,
            row=scene.at.row,
            key=scene.at.key,
        ).cpu()
    found: Tensor = memo["words of draws"]
    return found
