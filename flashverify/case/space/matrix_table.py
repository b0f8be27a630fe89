"""The entries of the fixed matrix, as texts: each is about one axis, and `matrix` fills in the others. Many are listed in `matrix_entries.txt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.case import DTYPES, LAYOUTS, PLAIN_POISONS, REGIMES
from flashverify.case.space.matrix_features import large_features, listed
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ROTATIONS", "focus", "large"]

_ADDED = ("few-keys", "shifted")
"""Regimes whose entries stand in the last section."""
_GENERATED = tuple(regime for regime in REGIMES if regime not in _ADDED)
_PLAIN_DTYPES = tuple(f"dtype={dtype}" for dtype in DTYPES)
_ROTATED_REGIMES = ("negative", "ties", "logits-1e3", "v-positive", "ascending", "integers", "outlier")
ROTATIONS = (
    tuple(f"regime={r} {d}" for r in ("normal",) * 6 + _ROTATED_REGIMES for d in _PLAIN_DTYPES),
    (
        "causal=top-left",
        "",
        "klen=20",
        "",
        "",
        "causal=bottom-right",
        "",
        "klen=1",
        "",
        "causal=bottom-right klen=32",
        "",
    ),
    ("", "layout=bshd", "gap=8 padding=nan", "layout=bshd gap=3 offset=1 padding=max", ""),
    ("", "do=transposed", "", "dlse=yes", "", "do=expanded", ""),
)
"""Values of the axes that an entry leaves open: the n-th entry takes element n modulo the length of each. The second is the mask."""

_LENGTHS = (1, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65)
_RECTANGLES = (
    (1, 65),
    (1, 257),
    (65, 1),
    (16, 17),
    (17, 16),
    (33, 31),
    (31, 33),
    (5, 80),
    (80, 5),
    (48, 64),
    (64, 48),
    (15, 129),
)
_HEADS = ((1, 1, 1), (1, 3, 1), (1, 6, 2), (2, 2, 2), (2, 2, 1), (1, 4, 2), (3, 1, 1))
_DIMS = (
    (8, 8),
    (16, 16),
    (24, 24),
    (40, 40),
    (64, 64),
    (72, 72),
    (96, 96),
    (128, 128),
    (256, 256),
    (16, 64),
    (64, 16),
    (40, 72),
    (128, 64),
)


_GRADS = tuple(
    f"{do} {dlse} {mask}".strip()
    for do in ("do=dense", "do=expanded", "do=transposed", "do=zero")
    for dlse, mask in (("dlse=no", ""), ("dlse=yes", "causal=bottom-right seq_q=40"), ("dlse=yes", "klen=17"))
)
_EDITS = tuple(
    f"batch=2 heads_q=4 heads_kv=2 edits={tensor}:{index}:{value}"
    for tensor, index in (("q", "0,1,5,3"), ("k", "0,0,32,0"), ("v", "1,1,20,7"), ("do", "0,3,0,31"))
    for value in ("nan", "inf", "-inf")
)


def focus() -> Iterator[str]:
    """One entry after the other, every device."""
    yield from (f"seq_q={n} seq_k={n}" for n in _LENGTHS)
    yield from (f"seq_q={n} seq_k={n} causal=top-left" for n in (1, 16, 17, 33, 65))
    for q, k in _RECTANGLES:
        yield from (f"seq_q={q} seq_k={k} {mask}" for mask in ("", "causal=bottom-right", "causal=top-left"))
    yield from (f"regime={regime} dtype={dtype}" for regime in _GENERATED for dtype in DTYPES)
    yield from (
        f"regime=overflow seed={seed} dtype={dtype}" for seed in (0, 2) for dtype in DTYPES if FORMATS[dtype].narrow
    )
    yield from (
        f"regime={regime} seq_q=17 seq_k=65 causal=bottom-right"
        for regime in ("ascending", "one-hot", "negative", "v-cancelling")
    )
    yield from (f"batch={b} heads_q={hq} heads_kv={hkv}" for b, hq, hkv in _HEADS)
    yield from (f"batch={b} heads_q={hq} heads_kv={hkv} seq_q=20 causal=bottom-right" for b, hq, hkv in _HEADS)
    yield from (f"dim_qk={d} dim_v={dv}" for d, dv in _DIMS)
    yield from listed("scales")
    yield from listed("trees")
    yield from listed("masked")
    yield from listed("features")
    yield from (f"padding={poison} klen=20 seq_q=17 layout={layout}" for poison in PLAIN_POISONS for layout in LAYOUTS)
    yield from (f"padding={poison} gap=8" for poison in PLAIN_POISONS)
    yield from listed("storage")
    yield from _GRADS
    for precision in ("tf32", "tf32x3"):
        yield from (
            f"dtype=fp32 precision={precision} {rest}"
            for rest in ("", "causal=bottom-right seq_q=17", "dim_qk=64 dim_v=40", "regime=logits-1e2")
        )
    yield from _EDITS
    yield from listed("empty")
    yield from ("backward=no", "backward=no klen=17", "backward=no causal=top-left")


def large() -> Iterator[str]:
    """What only a GPU can afford: many tiles, and lengths past the powers of two."""
    for n in (128, 129, 255, 257, 512, 600):
        yield from (
            f"seq_q={n} seq_k={n} dim_qk=64 dim_v=64 {mask}" for mask in ("", "causal=top-left", f"klen={n - 100}")
        )
    for q, k in ((1, 2049), (129, 513), (513, 129), (600, 16), (17, 1025)):
        yield from (f"seq_q={q} seq_k={k} dim_qk=128 dim_v=128 {mask}" for mask in ("", "causal=bottom-right"))
    yield from (
        f"regime={regime} seq_q=257 seq_k=385 dim_qk=64 dim_v=64 {mask}"
        for regime in _GENERATED
        for mask in ("", "causal=bottom-right")
    )
    yield from (
        f"batch={b} heads_q={q} heads_kv={kv} seq_q=130 seq_k=260"
        for b, q, kv in ((2, 8, 2), (1, 24, 2), (16, 1, 1), (4, 4, 1))
    )
    yield from large_features()
    yield "seq_q=64 seq_k=300 tree=" + ",".join(str(max(-1, node - 1 - node % 4)) for node in range(64))
    yield "seq_q=130 seq_k=400 tree=" + ",".join(str((node - 1) // 2) for node in range(130))
