"""Defects of the diagonal, of windows, of patterns, of lengths and of walks, planted in `planted.Plain`."""

import dataclasses

import torch

from tests.diagnosis.planted import Plain

FORWARD = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 backward=no "
SQUARE = FORWARD.replace("seq_q=5 seq_k=7", "seq_q=20 seq_k=20")
TILES = FORWARD.replace("seq_k=7", "seq_k=60")
BLOCKS = FORWARD.replace("seq_q=5 seq_k=7", "seq_q=40 seq_k=56")
EACH = "batch=2 heads_q=4 heads_kv=2 bitmap=128,3,1"
EACH_BLOCK = "batch=2 heads_q=4 heads_kv=2 blocks=16,16,128,4,0,1"


def given(**changes):
    """A forward of other tensors of the problem, each a function of the problem."""

    def forward(self, problem):
        changed = {name: change(problem) for name, change in changes.items()}
        return Plain.forward(self, dataclasses.replace(problem, **changed))

    return {"forward": forward}


def banded(see):
    return {"window": lambda s, i, j, a, b: see(i, j, a, b)}


def bits(change):
    return {"pattern": lambda s, p, bits: change(bits)}


def live(change):
    return {"live": lambda s, p, blocks: change(blocks)}


def keys_seen(see):
    """A mask of the keys alone, given their numbers and how many there are."""
    return {"drop_keys": lambda s, x: x & see(torch.arange(x.shape[-1]), x.shape[-1])}


def before(x, axis):
    return torch.cat([x.narrow(axis, 0, 1), x.narrow(axis, 0, x.shape[axis] - 1)], axis)


def after(x, axis):
    return torch.cat([x.narrow(axis, 1, x.shape[axis] - 1), x.narrow(axis, x.shape[axis] - 1, 1)], axis)


def by_bytes(x):
    found = torch.zeros_like(x)
    for key in range(x.shape[-1]):
        word, byte, bit = key // 32, key % 32 // 8, key % 8
        other = 32 * word + 8 * (3 - byte) + bit
        if other < x.shape[-1]:
            found[..., key] = x[..., other]
    return found


def words_by_bytes(x):
    found = torch.zeros_like(x)
    rows, width = x.shape[2:]
    words = -(-width // 32)
    for row in range(rows):
        for key in range(width):
            word = row * words + key // 8
            other, place = word // words, word % words * 32 + key % 32
            if other < rows and place < width:
                found[:, :, row, key] = x[:, :, other, place]
    return found


def without(which):
    """Live blocks without the first or the last of each block of rows."""

    def change(blocks):
        blocks = blocks.clone()
        for row in blocks.view(-1, blocks.shape[-1]):
            places = row.nonzero().flatten()
            if len(places):
                row[places[which]] = False
        return blocks

    return live(change)


def node(by):
    def ancestors(self, parents, node):
        yield from Plain.ancestors(self, parents, min(max(node - by, 0), len(parents) - 1))

    return {"ancestors": ancestors}


def shifted(shift):
    return {"shift": lambda s, p, n, m: shift(p, n, m) if p.causal == "bottom-right" else 0}


LENGTHS = "batch=2 klen=4,7 qlen=3,5 padding=dirt"
DEFECTS = [
    (
        "diagonal-of-the-buffers",
        FORWARD + "causal=bottom-right klen=4",
        shifted(lambda p, n, m: p.case.seq_k - p.case.seq_q),
    ),
    (
        "diagonal-of-first-sequence",
        FORWARD + "batch=2 causal=bottom-right klen=6,4",
        shifted(lambda p, n, m: int(p.key_lengths[0]) - n),
    ),
    ("diagonal-shift-sign", FORWARD + "causal=bottom-right", shifted(lambda p, n, m: n - m)),
    (
        "diagonal-shift-twice",
        FORWARD.replace("seq_k=7", "seq_k=11") + "causal=bottom-right",
        shifted(lambda p, n, m: 2 * (m - n)),
    ),
    (
        "diagonal-of-packed-rows",
        FORWARD + "heads_q=4 heads_kv=2 causal=top-left",
        {"causal": lambda s, i, j: j <= i // 2},
    ),
    ("diagonal-of-first-row-of-tile", SQUARE + "causal=top-left", {"causal": lambda s, i, j: j <= i // 16 * 16}),
    (
        "diagonal-of-last-row-of-tile",
        SQUARE + "causal=top-left",
        {"causal": lambda s, i, j: j <= (i // 16 * 16 + 15).clamp(max=int(i.max()))},
    ),
    ("diagonal-of-row-in-tile", SQUARE + "causal=top-left", {"causal": lambda s, i, j: j <= i % 16}),
    ("causal-several-keys-more", SQUARE + "causal=top-left", {"causal": lambda s, i, j: j <= i + 4}),
    ("causal-several-keys-less", SQUARE + "causal=top-left", {"causal": lambda s, i, j: j <= i - 2}),
    ("window-sides-exchanged", FORWARD + "window=3,1", banded(lambda i, j, a, b: (i - j <= b) & (j - i <= a))),
    ("window-one-side-for-both", FORWARD + "window=3,1", banded(lambda i, j, a, b: (i - j <= a) & (j - i <= a))),
    ("window-left-makes-causal", FORWARD + "window=0,*", banded(lambda i, j, a, b: (i - j <= a) & (j <= i))),
    ("window-one-narrower", FORWARD + "window=3,1", banded(lambda i, j, a, b: (i - j < a) & (j - i < b))),
    ("window-one-wider", FORWARD + "window=2,1", banded(lambda i, j, a, b: (i - j <= a + 1) & (j - i <= b + 1))),
    ("window-half-or-twice", FORWARD + "window=3,*", banded(lambda i, j, a, b: i - j <= a // 2)),
    ("window-left-of-last-row", FORWARD + "window=2,*", banded(lambda i, j, a, b: i.max() - j <= a)),
    (
        "window-of-first-row",
        FORWARD + "window=2,1",
        banded(lambda i, j, a, b: (i - j <= a) & (j - i.min() <= b)),
    ),
    ("window-left-by-tiles", SQUARE + "window=2,*", banded(lambda i, j, a, b: j >= (i - a).clamp(min=0) // 16 * 16)),
    ("bitmap-of-row-before", FORWARD + "bitmap=128,3", bits(lambda x: before(x, 2))),
    ("bitmap-of-row-after", FORWARD + "bitmap=128,3", bits(lambda x: after(x, 2))),
    (
        "bitmap-key-before",
        FORWARD + "bitmap=128,3",
        bits(lambda x: before(x, 3) & (torch.arange(x.shape[3]) > 0)),
    ),
    ("bitmap-of-first-head", FORWARD + EACH, bits(lambda x: x[:, :1].expand_as(x))),
    ("bitmap-of-next-head", FORWARD + EACH, bits(lambda x: x.roll(-1, 1))),
    ("bitmap-of-first-sequence", FORWARD + EACH, bits(lambda x: x[:1].expand_as(x))),
    ("bitmap-bytes-reversed", TILES + "bitmap=128,3", bits(by_bytes)),
    ("bitmap-words-by-bytes", TILES + "bitmap=128,3", bits(words_by_bytes)),
    ("blocks-of-row-before", BLOCKS + "blocks=16,16,128,4", live(lambda x: before(x, 2))),
    ("blocks-of-row-after", BLOCKS + "blocks=16,16,128,4", live(lambda x: after(x, 2))),
    ("blocks-key-before", BLOCKS + "blocks=16,16,128,4", live(lambda x: before(x, 3) & (torch.arange(x.shape[3]) > 0))),
    ("blocks-of-first-head", BLOCKS + EACH_BLOCK, live(lambda x: x[:, :1].expand_as(x))),
    ("blocks-of-next-head", BLOCKS + EACH_BLOCK, live(lambda x: x.roll(-1, 1))),
    ("blocks-of-first-sequence", BLOCKS + EACH_BLOCK, live(lambda x: x[:1].expand_as(x))),
    ("blocks-of-kv-head", BLOCKS + EACH_BLOCK, live(lambda x: x[:, torch.arange(4) // 2])),
    (
        "blocks-batch-head-exchanged",
        BLOCKS + EACH_BLOCK.replace("heads_q=4", "heads_q=2"),
        live(lambda x: x.transpose(0, 1)),
    ),
    ("blocks-last-missing", BLOCKS + "blocks=16,16,128,4", without(-1)),
    ("blocks-first-missing", BLOCKS + "blocks=16,16,200,4", without(0)),
    ("tree-of-node-before", FORWARD + "tree=-1,0,0,1,1", node(1)),
    ("tree-of-node-after", FORWARD + "tree=-1,0,0,1,1", node(-1)),
    (
        "query-lengths-of-first-sequence",
        FORWARD + LENGTHS,
        given(query_lengths=lambda p: p.query_lengths[:1].expand_as(p.query_lengths)),
    ),
    ("query-lengths-of-next-sequence", FORWARD + LENGTHS, given(query_lengths=lambda p: p.query_lengths.roll(-1))),
    ("query-lengths-one-less", FORWARD + LENGTHS, given(query_lengths=lambda p: p.query_lengths - 1)),
    ("query-lengths-of-keys", FORWARD + LENGTHS, given(query_lengths=lambda p: p.key_lengths)),
    (
        "query-lengths-of-keys",
        FORWARD + "klen=3 causal=bottom-right",
        given(query_lengths=lambda p: p.key_lengths.clamp(max=p.q.shape[2])),
    ),
    ("key-lengths-of-queries", FORWARD + LENGTHS, given(key_lengths=lambda p: p.query_lengths)),
    (
        "key-lengths-shortest-for-all",
        FORWARD + "batch=2 klen=7,4 padding=dirt",
        given(key_lengths=lambda p: p.key_lengths.amin().expand_as(p.key_lengths)),
    ),
    (
        "key-lengths-at-least-one",
        FORWARD + "batch=2 klen=0,7 padding=dirt",
        given(key_lengths=lambda p: p.key_lengths.clamp(min=1)),
    ),
    (
        "odd-key-tile-lost",
        TILES.replace("60", "40"),
        keys_seen(lambda j, n: (j < (n - 1) // 16 * 16) | (-(-n // 16) % 2 == 0)),
    ),
    ("second-key-tiles-skipped", TILES, keys_seen(lambda j, n: j // 16 % 2 == 0)),
    ("last-key-of-tiles-missing", TILES, keys_seen(lambda j, n: j % 16 != 15)),
    ("first-key-of-tiles-missing", TILES, keys_seen(lambda j, n: j % 16 != 0)),
]
