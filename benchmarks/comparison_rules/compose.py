"""A case from the features that are to be on: what an author of tests would write by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from flashverify.case.case import Case, Grad, Logits, Storage, Values
from flashverify.case.masks.mask import Bitmap, Blocks, Mask, Packed

if TYPE_CHECKING:
    from random import Random

__all__ = ["Shape", "compose"]

_SEEDS = 2**20
_CACHE_ROWS = 16
"""Most query rows of a decoding case."""
_PACKED = 2
"""Packed sequences of a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a suite parametrises besides features.

    Attributes:
        seq_q: rows of a sequence.
        seq_k: keys of a sequence.
        dim: of q, k and v.
        dtype: of the inputs.
        regime: of the values.
        batch: sequences.
        heads: query heads and kv heads.
        grouped: the same where several query heads share a kv head.
        causal: alignment of the causal mask.
        layout: of the tensors.
        dropout: probability, where there is dropout.
        softcap: of the logits, where there is one.
        pages: keys per page, where the keys are paged.
        tile: rows and keys of a tile, where launch parameters are given.
    """

    seq_q: int
    seq_k: int
    dim: int
    dtype: str
    regime: str = "normal"
    batch: int = 1
    heads: tuple[int, int] = (2, 2)
    grouped: tuple[int, int] = (4, 2)
    causal: Literal["top-left", "bottom-right"] = "top-left"
    layout: str = "bhsd"
    dropout: float = 0.17
    softcap: float = 50.0
    pages: int = 16
    tile: tuple[int, int] = (32, 32)


def compose(rng: Random, subject: str, on: frozenset[str], shape: Shape) -> Case:
    """The case of `shape` with the features `on`, named as `Mutant.needs` names them.

    Lengths are drawn within 20 of the full one, window sides below the number of keys, as in flash-attention's tests.

    Args:
        rng: of the draw.
        subject: `bundled`, or a forward-only one.
        on: features.
        shape: everything else.
    """
    forward_only = subject != "bundled"
    seq_q = min(shape.seq_q, _CACHE_ROWS) if subject == "bundled-decode" else shape.seq_q
    seq_k = max(shape.seq_k, seq_q) if "tree" in on else shape.seq_k
    batch = max(shape.batch, 2) if "sequences" in on else shape.batch

    def lengths(full: int) -> tuple[int, ...]:
        return tuple(rng.randint(max(1, full - 20), full) for _ in range(batch))

    packed = None
    if "packed" in on:
        rows, keys = ([rng.randint(max(1, n - 20), n) for _ in range(_PACKED)] for n in (seq_q, seq_k))
        packed = Packed(tuple(accumulate(rows, initial=0)), tuple(accumulate(keys, initial=0)))
        seq_q, seq_k, batch = packed.cu_q[-1], packed.cu_k[-1], 1
    heads = shape.grouped if "groups" in on else shape.heads
    prefix = "prefix_lengths" in on
    causal = "bottom-right" if "tree" in on else shape.causal  # the nodes of a tree are the last keys
    window = (rng.randrange(seq_k), rng.randrange(seq_k)) if "window" in on else None
    mask = Mask(
        causal=causal if "causal" in on or prefix else None,
        window=(window[0], None) if window is not None and prefix else window,
        key_lengths=lengths(seq_k) if "key_lengths" in on and packed is None else None,
        query_lengths=lengths(seq_q) if "query_lengths" in on and packed is None else None,
        packed=packed,
        tree=tuple(rng.randint(max(-1, i - 4), i - 1) for i in range(seq_q)) if "tree" in on else None,
        blocks=Blocks(*rng.choice(((16, 16), (32, 32), (64, 64))), 128, rng.randrange(_SEEDS))
        if "blocks" in on
        else None,
        bitmap=Bitmap(128, rng.randrange(_SEEDS)) if "bitmap" in on else None,
        prefix_lengths=tuple(rng.randint(0, seq_k) for _ in range(batch if packed is None else _PACKED))
        if prefix
        else None,
    )
    return Case(
        batch=batch,
        heads_q=heads[0],
        heads_kv=heads[1],
        seq_q=seq_q,
        seq_k=seq_k,
        dim_qk=shape.dim,
        dim_v=shape.dim,
        dtype=shape.dtype,
        mask=mask,
        logits=Logits(
            softcap=shape.softcap if "softcap" in on else None,
            alibi="alibi" in on,
            bias=rng.choice(("full", "head", "shared")) if "bias" in on else None,
            sink="sink" in on,
            relative_bias=(32, 128, False) if "relative_bias" in on else None,
        ),
        dropout=shape.dropout if "dropout" in on else 0.0,
        values=Values(regime=shape.regime, seed=rng.randrange(_SEEDS)),
        storage=Storage(layout=shape.layout, page_size=shape.pages if "paged" in on else None),
        grad=Grad(dlse="dlse" in on, backward=not forward_only),
        launch=_launch(subject, shape) if "launch" in on else (),
    )


def _launch(subject: str, shape: Shape) -> tuple[tuple[str, int], ...]:
    """The parameters that the subject has."""
    if subject == "bundled-decode":
        return (("n_splits", 3),)
    if subject == "bundled-chunked":
        return (("chunks", 3),)
    return (("block_m", shape.tile[0]), ("block_n", shape.tile[1]))
