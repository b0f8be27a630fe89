"""The entries of the fixed matrix about the optional parts: bands, packed sequences, sparse patterns, logits, dropout, pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["features", "large_features", "paged"]

_BANDS = (
    *("window=1,0", "window=0,1", "window=*,4", "window=15,*", "window=16,16", "window=33,33", "window=*,*"),
    *("window=0,* causal=top-left", "window=17,0 causal=bottom-right seq_q=20", "window=2,3 seq_q=40 seq_k=20"),
    *(
        "window=3,1 causal=bottom-right klen=9",
        "window=4,0 causal=bottom-right qlen=17 klen=29",
        "qlen=1 causal=top-left",
    ),
)
_PACKED = (
    *("packed=0,33/0,33", "packed=0,16,33/0,16,33", "packed=0,0,33/0,0,33", "packed=0,17,17,33/0,17,17,33"),
    *("packed=0,20,33,33/0,20,33,33", "packed=0,1,2,33/0,1,2,33", "packed=0,10,20/0,10,20", "packed=0,0/0,0"),
    *("packed=0,20,33/0,0,33", "packed=0,0,33/0,20,33", "packed=0,5,30/0,31,32", "packed=0,16,32/0,15,32 seq_q=64"),
    *("packed=0,1,2,3,4/0,16,33,60,80 seq_q=4 seq_k=80", "packed=0,40,70/0,17,33 seq_q=70", "packed=0/0"),
    *("packed=0,20,33/0,20,33 causal=top-left", "packed=0,7,7,30/0,9,20,33 causal=top-left"),
    *("packed=0,20,33/0,10,33 causal=bottom-right", "packed=0,5,6,30/0,17,17,31 causal=bottom-right"),
    *("packed=0,20,33/0,20,33 window=4,0", "packed=0,12,33/0,20,33 window=3,2 causal=bottom-right"),
    *("packed=0,3,3,7/0,3,8,20 seq_q=8 tree=-1,0,0,-1,0,1,1", "packed=0,17,33/0,17,33 regime=one-hot"),
)
_SPARSE = (
    *("blocks=16,16,256,1", "blocks=16,16,0,1", "blocks=16,16,128,1", "blocks=16,16,20,2", "blocks=32,16,128,3"),
    *("blocks=16,32,128,4 seq_k=70", "blocks=16,16,0,0,1 seq_q=70 seq_k=70", "blocks=64,64,128,1 seq_q=70 seq_k=129"),
    *("blocks=16,16,128,5,0,1 batch=2", "blocks=48,32,128,6 seq_q=65", "blocks=16,16,128,7 causal=top-left"),
    *("blocks=16,16,160,8 causal=bottom-right seq_q=20", "blocks=16,16,200,9 klen=20", "blocks=16,16,200,1 window=8,8"),
    *("blocks=16,16,128,2 packed=0,20,33/0,20,33", "bitmap=256,1", "bitmap=0,1", "bitmap=128,1", "bitmap=2,1"),
    *(
        "bitmap=254,2 seq_q=17 seq_k=65",
        "bitmap=128,3,1 batch=2",
        "bitmap=128,4 causal=top-left",
        "bitmap=128,5 klen=20",
    ),
    *("bitmap=128,6 seq_k=31", "bitmap=128,7 blocks=16,16,128,7", "bitmap=128,8 packed=0,20,33/0,20,33"),
)
_LOGITS = (
    *("softcap=30", "softcap=1", "softcap=50 regime=logits-1e3", "softcap=1 causal=top-left", "softcap=0.01"),
    *("alibi=yes", "alibi=yes causal=top-left", "alibi=yes causal=bottom-right seq_q=17", "alibi=yes heads_q=3"),
    *(
        "alibi=yes batch=2 causal=bottom-right qlen=20,33 klen=33,9",
        "alibi=yes packed=0,20,33/0,10,33 causal=bottom-right",
        "alibi=wild heads_q=6 seed=3 causal=top-left",
        "alibi=wild sink=yes dlse=yes strided=yes padding=nan",
    ),
    *(f"bias={kind} batch=2 heads_q=4 seed={seed}" for kind in ("full", "head", "shared") for seed in (1, 5, 7)),
    *("bias=full padding=nan qlen=20 klen=17", "bias=head gap=3 offset=1", "bias=shared causal=top-left seed=6"),
    *(
        "bias=full packed=0,20,30/0,9,30 padding=nan",
        "bias=head seed=4 klen=20",
        "bias=shared seq_q=70 seq_k=17 seed=5",
    ),
    *("sink=yes", "sink=yes causal=bottom-right seq_q=40 seq_k=20", "sink=yes klen=0", "sink=yes heads_q=6 seed=9"),
    *("sink=yes dlse=yes heads_q=6 seed=10", "sink=yes regime=negative", "sink=yes packed=0,20,33/0,0,33"),
    *("softcap=30 alibi=yes bias=full sink=yes", "softcap=30 alibi=yes bias=full sink=yes dropout=0.5 causal=top-left"),
)
_HUGE = (
    *(
        "sink=yes heads_q=2 edits=sink:0,0,0,0:0x1.ep127;sink:1,0,0,0:-0x1.ep127",
        "alibi=yes heads_q=2 edits=slopes:0,0,0,0:0x1.ep127;slopes:1,0,0,0:-0x1.ep127",
        "alibi=yes heads_q=2 seq_q=40 seq_k=33 edits=slopes:0,0,0,0:0x1p96;slopes:1,0,0,0:-0x1p100",
    ),
    *(
        f"bias=full seq_q=2 seq_k=2 scale=1 regime=integers dtype={dtype} edits=q:0,0,0,0:0x1p61;k:0,0,0,0:0;"
        "k:0,0,1,0:0x1p61;bias:0,0,0,0:-0x1.ep127;bias:0,0,0,1:-0x1.ep127;bias:0,0,1,0:0x1.ep127"
        for dtype in ("bf16", "fp32")
    ),
    "bias=shared sink=yes dtype=bf16 edits=bias:0,0,3,2:0x1.ep127;sink:0,0,0,0:-0x1.ep127",
)
"""Modifiers that leave fp32 in base 2, for subjects that promise what becomes of them."""
_DROPOUT = (
    *("dropout=0.1", "dropout=0.5", "dropout=0.9", "dropout=0x1p-32", "dropout=0.999", "dropout=0.5 causal=top-left"),
    *("dropout=0.5 batch=2 heads_q=4 seed=200", "dropout=0.5 packed=0,20,33/0,20,33", "dropout=0.5 klen=17 dlse=yes"),
)
_TOGETHER = (
    *("packed=0,10,20/0,9,20 sink=yes dlse=yes dropout=0.5 window=8,8 softcap=30", "window=8,8 bitmap=200,2 alibi=yes"),
    *("packed=0,10,20/0,9,20 alibi=yes bitmap=200,1 sink=yes seed=9", "window=4,4 bias=head qlen=20"),
    "tree=-1,0,1,0,0,4,4,1 seq_q=8 qlen=7 dropout=0.5 sink=yes softcap=30 alibi=yes bias=full",
    "tree=-1,0,1,0,0,4,4,1 seq_q=8 blocks=16,16,200,1",
    *(
        f"{mask} qlen=20 softcap=30 sink=yes dropout=0.1 alibi=yes bias=head"
        for mask in ("blocks=16,16,200,3", "bitmap=200,4")
    ),
)
"""Pairs of parts that no other entry has."""
_DECODE = (
    *("seq_q=1 seq_k=1", "seq_q=1 seq_k=17", "seq_q=1 seq_k=257", "seq_q=4 seq_k=130 klen=97", "seq_q=2 seq_k=65"),
    *("seq_q=1 seq_k=129 batch=3 klen=129,0,64", "seq_q=3 seq_k=100 causal=bottom-right heads_q=4 heads_kv=1"),
)


def features() -> Iterator[str]:
    """One entry after the other, every device."""
    yield from (*_BANDS, *_PACKED, *_SPARSE, *_LOGITS, *_HUGE, *_DROPOUT, *_TOGETHER, *_DECODE)


def large_features() -> Iterator[str]:
    """The same parts over many tiles."""
    yield from (
        f"{mask} {rest}"
        for rest in ("seq_q=257 seq_k=257 dim_qk=64 dim_v=64", "seq_q=130 seq_k=400 dim_qk=128 dim_v=128")
        for mask in (
            *("window=63,0", "window=128,64", "window=31,0 causal=bottom-right", "packed=0,65,65,129/0,63,127,257"),
            *("packed=0,1,128/0,129,257 causal=bottom-right", "blocks=64,64,100,1", "blocks=64,128,0,0,1"),
            *("bitmap=128,1", "softcap=30", "alibi=yes", "bias=head", "sink=yes", "dropout=0.1"),
        )
    )
    yield from (f"seq_q=1 seq_k={n} dim_qk=128 dim_v=128 heads_q=8 batch=2" for n in (512, 1025, 2049))


def paged(page_sizes: tuple[int, ...]) -> Iterator[str]:
    """One entry after the other for each page size: whole pages, a tail of one key, unused pages, sequences without any."""
    for size in page_sizes:
        lengths = (size, size + 1, 2 * size - 1, 3 * size, 130)
        yield from (f"page_size={size} seq_q=1 seq_k={n} padding=nan" for n in lengths)
        yield f"page_size={size} seq_q=2 seq_k={3 * size} batch=3 klen={3 * size},0,{size + 1} padding=inf"
        yield f"page_size={size} seq_q=3 seq_k={2 * size + 3} causal=bottom-right heads_q=4 heads_kv=2 gap=8 layout=bshd"
        yield f"page_size={size} seq_q=4 seq_k={2 * size + 4} tree=-1,0,0,1 expand=yes"
