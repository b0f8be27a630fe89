"""Terms of tiles and pieces of keys: what an online softmax, or a merge of splits, knows of them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.extents import tile_extents
from flashverify.diagnosis.readings.masks.other_masks import other_rows
from flashverify.diagnosis.readings.weights.models import pieces_of
from flashverify.diagnosis.readings.weights.term import Term

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.masks.extent import Extent
    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["tile_terms"]


def tile_terms(effect: Effect) -> Iterator[Term]:
    """What an online softmax over tiles, or a merge of splits, knows of each tile, and of some tiles beside the others."""

    def by_tile(e: Effect, t: int, what: str) -> Tensor:
        z = _masked(e)
        count = -(-z.shape[-1] // t)
        padded = torch.nn.functional.pad(z, (0, count * t - z.shape[-1]), value=-math.inf).view(*z.shape[:3], count, t)
        own = padded.logsumexp(-1) if what == "lse" else padded.amax(-1)
        if what in ("running", "earlier"):
            own = own.cummax(-1).values
        if what == "earlier":
            own = torch.nn.functional.pad(own, (1, 0), value=-math.inf)[..., :-1]
        own = torch.where(torch.isfinite(own), own, 0.0)
        return own.repeat_interleave(t, -1)[..., : z.shape[-1]]

    def beside(e: Effect, extent: Extent, what: str, *, inside: bool) -> Tensor:
        z, where = _masked(e), extent.where(e.scene)
        part = z.masked_fill(~where if inside else where, -math.inf)
        own, whole = (x.logsumexp(-1) if what == "LSE" else x.amax(-1) for x in (part, z))
        more = (own - whole).unsqueeze(-1)
        return torch.where(where & torch.isfinite(more), more, 0.0)

    yield from _of_pieces()
    names = (("max", "the largest logit of the key's tile of {}"), ("lse", "the LSE of the key's tile of {}"))
    running = (
        ("running", "the largest logit up to the key's tile of {}"),
        ("earlier", "the largest logit before the key's tile of {}"),
    )
    sizes = [t for t in dict.fromkeys((effect.scene.form.block_n, *TILES)) if t]
    for t in sizes:
        for what, words in (*names, *running):
            yield Term(words=words.format(t), kind="extra", of=partial(lambda e, t, w: by_tile(e, t, w), t=t, w=what))
    for t in sizes:
        for words, steps in _STEPS:
            yield Term(
                words=f"O is not rescaled {words.format(t)}",
                kind="exchange",
                of=partial(_without_rescale, size=t, steps=steps),
            )
    for t in sizes:
        for rows in TILES:
            for words, misses in _TOGETHER:
                yield Term(
                    words=f"O is not rescaled at tiles of {t} keys at which {words.format(rows)}",
                    kind="exchange",
                    of=partial(_without_rescale_of_tiles, size=t, rows=rows, misses=misses),
                )
    for t in sizes:
        for extent in tile_extents(t):
            for what in ("largest logit", "LSE"):
                for inside, whose in ((True, "their"), (False, "the other keys'")):
                    yield Term(
                        words=f"{whose} {what} less the row's, at {extent.words}",
                        kind="extra",
                        of=partial(lambda e, x, w, n: beside(e, x, w, inside=n), x=extent, w=what, n=inside),
                        added=partial(_rescaled, words=extent.words, top=f"{whose} {what}", own=inside),
                    )


_STEPS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    *((f"from tile {n} of {{}} keys on, counted from 0", lambda x, n=n: x >= n) for n in (2, 3, 4)),
    *((f"in tile {n} of {{}} keys, counted from 0", lambda x, n=n: x == n) for n in (1, 2, 3)),
    ("in every second tile of {} keys, the second one first", lambda x: x % 2 == 1),
    ("in every second tile of {} keys, the third one first", lambda x: x % 2 == 0),
    ("in the last tile of {} keys", lambda x: x == x[-1]),
)
"""Tiles of a walk at which the accumulator of O may lack its rescale."""


def _without_rescale(effect: Effect, size: int, steps: Callable[[Tensor], Tensor]) -> Tensor | None:
    """What is added to the logits of tiles before the growth of the running maximum that `steps` do not rescale by."""
    growth = _growth(effect, size)
    return None if growth is None else _missed(effect, growth, steps(torch.arange(growth.shape[-1])), size)


def _growth(effect: Effect, size: int) -> Tensor | None:
    """By how much each tile raises a row's running maximum, `[B, Hq, Sq, tiles]`; None of one tile, or of packed sequences."""
    z = _masked(effect)
    count = -(-z.shape[-1] // size)
    if count < 2 or effect.scene.case.mask.packed is not None:
        return None
    padded = torch.nn.functional.pad(z, (0, count * size - z.shape[-1]), value=-math.inf)
    top = padded.view(*z.shape[:3], count, size).amax(-1).cummax(-1).values
    return torch.nn.functional.pad((top[..., 1:] - top[..., :-1]).nan_to_num(0.0, 0.0, 0.0), (1, 0))


def _missed(effect: Effect, growth: Tensor, where: Tensor, size: int) -> Tensor:
    missed = torch.where(where, growth, 0.0)
    later = missed.flip(-1).cumsum(-1).flip(-1) - missed
    return later.repeat_interleave(size, -1)[..., : effect.logits.shape[-1]]


def _without_rescale_of_tiles(
    effect: Effect, size: int, rows: int, misses: Callable[[Tensor, Tensor], Tensor]
) -> Tensor | None:
    """The same where the rows of a tile decide together whether they rescale.

    Args:
        effect: a case.
        size: keys of a tile.
        rows: rows of a tile.
        misses: of whether each row's maximum grows, bool, and of the number of the first row of its tile, where it is not rescaled.
    """
    growth, count = _growth(effect, size), effect.scene.case.seq_q
    if growth is None or count < 2:
        return None
    return _missed(effect, growth, misses(growth > 0, torch.arange(count) // rows), size)


def _as_the_first_row(grows: Tensor, tile: Tensor) -> Tensor:
    first = torch.searchsorted(tile, tile)
    return ~grows.index_select(2, first)


def _unless_all_grow(grows: Tensor, tile: Tensor) -> Tensor:
    still = torch.zeros(*grows.shape[:2], int(tile[-1]) + 1, grows.shape[3], dtype=torch.int64)
    return still.index_add(2, tile, (~grows).long()).index_select(2, tile) > 0


_TOGETHER: tuple[tuple[str, Callable[[Tensor, Tensor], Tensor]], ...] = (
    ("the maximum of the first row of its tile of {} rows does not grow", _as_the_first_row),
    ("the maximum of some row of its tile of {} rows does not grow", _unless_all_grow),
)
"""Where a row is not rescaled though its maximum grows, if the rows of a tile decide together."""


def _rescaled(factor: str, words: str, top: str, *, own: bool) -> str:
    """What it means that `factor` times `top` less the row's is added to the logits of some keys."""
    part = f"the part of O of {words}"
    if own and factor in ("1", "-1"):
        return f"{part} is {'rescaled once too often' if factor == '1' else 'not rescaled'}, by exp({top} - the row's)"
    verb = {"1": "multiplied by exp(", "-1": "divided by exp("}.get(factor, f"multiplied by exp({factor} * ")
    return f"{part} is {verb}{top} - the row's)"


def _of_pieces() -> Iterator[Term]:
    """What a merge of pieces of the keys weighs them by."""

    def each(e: Effect, what: str) -> tuple[Tensor, Tensor] | None:
        """Of each piece, `[B, Hq, Sq, pieces]`, and the number of the piece of each key, `[B, Hq, Sq, Sk]`."""
        piece = pieces_of(e)
        if piece is None:
            return None
        z, count = _masked(e), int(piece.max()) + 1
        parts = [z.masked_fill((piece != n)[:, None, None, :], -math.inf) for n in range(count)]
        found = torch.stack([part.logsumexp(-1) if what == "lse" else part.amax(-1) for part in parts], -1)
        return found, piece[:, None, None, :].expand(z.shape)

    def of_pieces(e: Effect, what: str) -> Tensor | None:
        found = each(e, what)
        if found is None:
            return None
        own = found[0].gather(-1, found[1])
        return torch.where(torch.isfinite(own), own, 0.0)

    def of_other_pieces(e: Effect, move: Callable[[Tensor, int], Tensor]) -> Tensor | None:
        found = each(e, "lse")
        if found is None:
            return None
        lse, piece = found
        other = move(torch.arange(lse.shape[-1]), lse.shape[-1]) % lse.shape[-1]
        more = lse[..., other].gather(-1, piece) - lse.gather(-1, piece)
        return more.nan_to_num(0.0, math.inf, -math.inf)

    def instead(e: Effect, of: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
        lse, top = of_pieces(e, "lse"), of_pieces(e, "max")
        return None if lse is None or top is None else of(lse, top) - lse

    def of_other_rows(e: Effect, move: Callable[[Effect, Tensor], Tensor]) -> Tensor | None:
        lse = of_pieces(e, "lse")
        return None if lse is None else move(e, lse) - lse

    for words, of in _WEIGHED_BY:
        yield Term(words=f"partial results are {words}", kind="exchange", of=partial(instead, of=of))
    for words, move in other_rows():
        weighed = f"partial results are weighed by the LSE of {words}"
        yield Term(words=weighed, kind="exchange", of=partial(of_other_rows, move=move))
    for words, of_piece in _OTHER_PIECES:
        yield Term(
            words=f"partial results are weighed by the LSE of {words}",
            kind="exchange",
            of=partial(of_other_pieces, move=of_piece),
        )
    for what, words in (("lse", "LSE"), ("max", "largest logit")):
        yield Term(
            words=f"the {words} of the piece of keys that is merged",
            kind="extra",
            of=partial(of_pieces, what=what),
            added=partial(lambda factor, w: f"partial results are weighed by exp(LSE + {factor} * their {w})", w=words),
        )


_WEIGHED_BY: tuple[tuple[str, Callable[[Tensor, Tensor], Tensor]], ...] = (
    ("weighed by the exponential of their largest logit in place of their LSE", lambda lse, top: top),
    ("weighed by their row sums alone, without the exponential of their largest logit", lambda lse, top: lse - top),
    ("merged with equal weights, not by their LSE", lambda lse, top: 0.0 * lse),
    ("weighed by 2 to the power of their natural LSE", lambda lse, top: math.log(2) * lse),
    ("weighed by the exponential of their LSE in base 2", lambda lse, top: lse / math.log(2)),
    ("weighed by the square of what they should be, exp(2 LSE)", lambda lse, top: 2 * lse),
    ("weighed by exp(-LSE), not by exp(LSE)", lambda lse, top: -lse),
)
"""What partial results may be weighed by, as the logarithm of a function of their LSE and their largest logit."""
_OTHER_PIECES: tuple[tuple[str, Callable[[Tensor, int], Tensor]], ...] = (
    ("the next part, the last by that of the first", lambda p, n: p + 1),
    ("the part before, the first by that of the last", lambda p, n: p - 1),
    ("the part as far from the end", lambda p, n: n - 1 - p),
    ("the first part", lambda p, n: p * 0),
    ("the last part", lambda p, n: p * 0 + n - 1),
)
"""The piece whose LSE a piece may be weighed by, as a function of its number and how many there are."""


def _masked(effect: Effect) -> Tensor:
    return effect.logits.masked_fill(~effect.visible, -math.inf)
