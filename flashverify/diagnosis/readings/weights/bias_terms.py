"""Terms of ALiBi and of a bias that are read or measured elsewhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.weights.term import HEADS, Term, bias_of, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["alibi_terms", "bias_terms"]

_FORMS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("that of the keys before the row's position alone", lambda d: (-d).clamp(min=0)),
    ("that of the keys behind the row's position alone", lambda d: d.clamp(min=0)),
    ("squared", lambda d: d * d),
    ("its square root", lambda d: d.abs().sqrt()),
    ("the logarithm of 1 + the distance", lambda d: (1 + d.abs()).log()),
)
"""What may stand for the distance, of key - position, in words."""


def alibi_terms() -> Iterator[Term]:
    """ALiBi with other distances and other slopes."""

    def slopes(effect: Effect) -> Tensor:
        found: Tensor = effect.scene.problem.slopes.double().view(1, -1, 1, 1)  # type: ignore[union-attr]
        return found

    def exchanged(distance: Callable[[Effect], Tensor]) -> Callable[[Effect], Tensor | None]:
        def of(effect: Effect) -> Tensor | None:
            old = bias_of(effect, "slopes")
            return None if old is None else -slopes(effect) * distance(effect) - old

        return of

    def ends(effect: Effect) -> Tensor:
        at = effect.scene.at
        return (at.key[:, None, :] - (at.row + at.keys - at.rows)[:, :, None])[:, None].double()

    def starts(effect: Effect) -> Tensor:
        at = effect.scene.at
        return (at.key[:, None, :] - at.row[:, :, None])[:, None].double()

    yield Term(
        words="ALiBi's distance counts from the top-left diagonal",
        kind="exchange",
        of=exchanged(lambda e: starts(e).abs()),
    )
    yield Term(
        words="ALiBi's distance counts from the bottom-right diagonal",
        kind="exchange",
        of=exchanged(lambda e: ends(e).abs()),
    )
    yield Term(
        words="ALiBi is minus the slope times (key - row), of either sign", kind="exchange", of=exchanged(signed)
    )
    yield Term(
        words="ALiBi is the slope times (key - row), of either sign",
        kind="exchange",
        of=exchanged(lambda e: -signed(e)),
    )
    for t in TILES:
        yield Term(
            words=f"ALiBi's distance counts from the first row of the tile of {t} rows",
            kind="exchange",
            of=exchanged(partial(lambda e, t: (signed(e) + (e.scene.at.row % t)[:, None, :, None]).abs(), t=t)),
        )
        yield Term(
            words=f"ALiBi's distance is that of the first key of the tile of {t} keys",
            kind="exchange",
            of=exchanged(partial(lambda e, t: (signed(e) - (e.scene.at.key % t)[:, None, None, :]).abs(), t=t)),
        )

    for c in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        yield Term(
            words=f"ALiBi's distance is at most {c}",
            kind="exchange",
            of=exchanged(partial(lambda e, c: signed(e).abs().clamp(max=c), c=c)),
        )
        if c > 1:
            yield Term(
                words=f"ALiBi's distance is rounded down to a multiple of {c}",
                kind="exchange",
                of=exchanged(partial(lambda e, c: signed(e).abs() // c * c, c=c)),
            )
    for words, form in _FORMS:
        yield Term(
            words=f"ALiBi's distance is {words}",
            kind="exchange",
            of=exchanged(partial(lambda e, f: f(signed(e)), f=form)),
        )

    def of_heads(source: Callable[[Effect, Tensor], Tensor]) -> Callable[[Effect], Tensor | None]:
        def of(effect: Effect) -> Tensor | None:
            old, heads = bias_of(effect, "slopes"), torch.arange(effect.scene.case.heads_q)
            if old is None:
                return None
            other = slopes(effect)[:, source(effect, heads) % len(heads)]
            return (slopes(effect) - other) * signed(effect).abs()

        return of

    yield Term(
        words="the slope times the key's number",
        kind="extra",
        of=lambda e: slopes(e) * e.scene.at.key[:, None, None, :],
    )
    for words, source in HEADS:
        yield Term(words=f"ALiBi has the slope of {words}", kind="exchange", of=of_heads(source))


def bias_terms() -> Iterator[Term]:
    """The bias of other keys, rows, heads and sequences."""

    def moved(move: Callable[[Effect, Tensor], Tensor]) -> Callable[[Effect], Tensor | None]:
        def of(effect: Effect) -> Tensor | None:
            bias = bias_of(effect, "bias")
            return None if bias is None else move(effect, bias) - bias

        return of

    for axis, what in ((3, "key"), (2, "row"), (1, "head"), (0, "sequence")):
        for step, words in ((-1, f"the next {what}"), (1, f"the {what} before")):
            yield Term(
                words=f"the bias is that of {words}",
                kind="exchange",
                of=moved(partial(lambda e, b, s, a: b.roll(s, a), s=step, a=axis)),
            )
        yield Term(
            words=f"the bias is that of the first {what}",
            kind="exchange",
            of=moved(partial(lambda e, b, a: b.narrow(a, 0, 1).expand_as(b), a=axis)),
        )
    for t in TILES:
        for axis, what in ((3, "key"), (2, "row")):
            yield Term(
                words=f"the bias is that of the first {what} of the tile of {t}",
                kind="exchange",
                of=moved(partial(lambda e, b, t, a: b.index_select(a, torch.arange(b.shape[a]) // t * t), t=t, a=axis)),
            )
            yield Term(
                words=f"the bias is that of {what} {'j' if axis == 3 else 'i'} modulo {t}",
                kind="exchange",
                of=moved(partial(lambda e, b, t, a: b.index_select(a, torch.arange(b.shape[a]) % t), t=t, a=axis)),
            )
