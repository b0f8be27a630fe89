"""Terms of tiles and pieces of keys: what an online softmax, or a merge of splits, knows of them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.extents import tile_extents
from flashverify.diagnosis.readings.weights.models import pieces_of
from flashverify.diagnosis.readings.weights.term import Term

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    def of_pieces(e: Effect, what: str) -> Tensor | None:
        piece = pieces_of(e)
        if piece is None:
            return None
        z, found = _masked(e), torch.zeros_like(e.logits)
        for n in range(int(piece.max()) + 1):
            part = z[..., piece == n]
            own = (part.logsumexp(-1) if what == "lse" else part.amax(-1)).unsqueeze(-1)
            found[..., piece == n] = torch.where(torch.isfinite(own), own, 0.0).expand(part.shape)
        return found

    def beside(e: Effect, extent: Extent, what: str, *, inside: bool) -> Tensor:
        z, where = _masked(e), extent.where(e.scene)
        part = z.masked_fill(~where if inside else where, -math.inf)
        own, whole = (x.logsumexp(-1) if what == "LSE" else x.amax(-1) for x in (part, z))
        more = (own - whole).unsqueeze(-1)
        return torch.where(where & torch.isfinite(more), more, 0.0)

    for what, words in (("max", "largest logit"), ("lse", "LSE")):
        yield Term(
            words=f"the {words} of the piece of keys that is merged",
            kind="extra",
            of=partial(lambda e, w: of_pieces(e, w), w=what),
        )
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
        for extent in tile_extents(t):
            for what in ("largest logit", "LSE"):
                for inside, whose in ((True, "their"), (False, "the other keys'")):
                    yield Term(
                        words=f"{whose} {what} less the row's, at {extent.words}",
                        kind="extra",
                        of=partial(lambda e, x, w, n: beside(e, x, w, inside=n), x=extent, w=what, n=inside),
                    )


def _masked(effect: Effect) -> Tensor:
    return effect.logits.masked_fill(~effect.visible, -math.inf)
