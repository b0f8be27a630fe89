"""Wrong semantics of where a bitmap, a block-sparse pattern or a tree is read: rows, keys, heads and entries of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.patterns import bitmap_tensor, blocks_tensor
from flashverify.case.masks.tree import ancestors, single_trees
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import exchanged, of_heads_open, parts, spread_blocks, tree, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Change = Callable[[Scene, Tensor], Tensor]

__all__ = ["PATTERN_PLACES"]

_BYTE, _WORD = 8, 32


def _tables(scene: Scene) -> Iterator[tuple[str, Tensor]]:
    """The patterns of the case, bool `[B or 1, Hq or 1, rows, keys]`, in pairs or in blocks."""
    for name, table in (("bitmap", bitmap_tensor(scene.case)), ("blocks", blocks_tensor(scene.case))):
        if table is not None and table.numel():
            yield name, table


def _read(kind: str, change: Change) -> Callable[[Scene], Iterator[Alternative]]:
    """One kind of pattern, read otherwise; nothing where that is the same."""

    def build(scene: Scene) -> Iterator[Alternative]:
        for name, table in _tables(scene):
            if name == kind:
                changed = change(scene, table)
                if not torch.equal(changed.expand(_shape(scene, changed)), table.expand(_shape(scene, table))):
                    part = changed if kind == "bitmap" else spread_blocks(scene, changed)
                    yield Alternative(inputs=with_parts(scene, **{kind: part}))

    return build


def _shape(scene: Scene, table: Tensor) -> tuple[int, ...]:
    return (scene.case.batch, scene.case.heads_q, *table.shape[2:])


def _row_before(_scene: Scene, table: Tensor) -> Tensor:
    return torch.cat([table[:, :, :1], table[:, :, :-1]], 2)


def _row_after(_scene: Scene, table: Tensor) -> Tensor:
    return torch.cat([table[:, :, 1:], table[:, :, -1:]], 2)


def _key_before(_scene: Scene, table: Tensor) -> Tensor:
    return torch.nn.functional.pad(table[..., :-1], (1, 0))


def _kv_head(scene: Scene, table: Tensor) -> Tensor:
    return table if table.shape[1] < 2 else table[:, torch.arange(table.shape[1]) // scene.group]


def _bytes_reversed(_scene: Scene, bits: Tensor) -> Tensor:
    """Byte 3 - n of each word in place of byte n; what fills the last word is unset."""
    width = bits.shape[-1]
    key = torch.arange(width)
    source = key // _WORD * _WORD + (_WORD - _BYTE) - key % _WORD // _BYTE * _BYTE + key % _BYTE
    return bits[..., source.clamp(max=width - 1)] & (source < width)


def _words_by_bytes(_scene: Scene, bits: Tensor) -> Tensor:
    """Key j is looked for in word j // 8 of its row, not j // 32; a row is followed by the next one, the last one by nothing."""
    rows, width = bits.shape[2:]
    words = -(-width // _WORD)
    filled = torch.nn.functional.pad(bits, (0, words * _WORD - width)).flatten(2)
    key = torch.arange(width)
    place = torch.arange(rows)[:, None] * words * _WORD + key // _BYTE * _WORD + key % _WORD
    return filled[..., place.clamp(max=filled.shape[-1] - 1)] & (place < filled.shape[-1])


def _first_words(scene: Scene) -> Iterator[Alternative]:
    """Of a bitmap, or of the nodes of a tree, the bits of the first words count for those of later ones too."""
    bits, nodes = bitmap_tensor(scene.case), scene.case.mask.tree
    for words in (1, 2, 4, 8):
        changed: dict[str, Tensor] = {}
        if bits is not None and bits.shape[-1] > words * _WORD:
            changed["bitmap"] = bits[..., torch.arange(bits.shape[-1]) % (words * _WORD)]
        if nodes is not None and bits is None and scene.case.mask.packed is None:
            exact = ancestors(nodes, scene.case)
            node = torch.arange(exact.shape[-1])
            if len(node) > words * _WORD:
                earlier = node <= torch.arange(len(exact))[:, None] % len(node)
                changed["tree"] = tree(scene, exact[:, node % (words * _WORD)] & earlier)
        if changed:
            detail = "of the first word" if words == 1 else f"of the first {words} words"
            yield Alternative(inputs=with_parts(scene, **changed), detail=detail)


def _in_sequence(kind: str) -> Callable[[Scene], Iterator[Alternative]]:
    """A pattern of the whole packed buffer is read by numbers of rows, keys or both inside their sequence."""

    def build(scene: Scene) -> Iterator[Alternative]:
        packed, found = scene.case.mask.packed, parts(scene)
        if packed is None or kind not in found or len(packed.lengths()) < 2:
            return
        row, key = torch.arange(scene.case.seq_q), torch.arange(scene.case.seq_k)
        full = found[kind].expand(1, -1, len(row), len(key))
        for i, j, detail in (
            (row, scene.at.key[0], "of keys"),
            (scene.at.row[0], key, "of rows"),
            (scene.at.row[0], scene.at.key[0], "of rows and keys"),
        ):
            yield Alternative(inputs=with_parts(scene, **{kind: full[:, :, i][..., j]}), detail=detail)

    return build


def _last_missing(_scene: Scene, live: Tensor) -> Tensor:
    key = torch.arange(live.shape[-1])
    return live & (key != (key * live).amax(-1, keepdim=True))


def _first_missing(_scene: Scene, live: Tensor) -> Tensor:
    key = torch.arange(live.shape[-1])
    return live & (key != key.expand(live.shape).masked_fill(~live, live.shape[-1]).amin(-1, keepdim=True))


def _exchanged_blocks(scene: Scene) -> Iterator[Alternative]:
    live = blocks_tensor(scene.case)
    if live is not None and live.shape[0] * live.shape[1] > 1:
        changed, lost = exchanged(live, scene.case.batch, scene.case.heads_q)
        part = spread_blocks(scene, changed)
        yield Alternative(inputs=with_parts(scene, blocks=part), finish=of_heads_open(scene, lost))


def _tree_row(by: int) -> Callable[[Scene], Iterator[Alternative]]:
    """A node sees what the one `by` before it does; the nodes at the end their own."""

    def build(scene: Scene) -> Iterator[Alternative]:
        nodes = scene.case.mask.tree
        if nodes is None:
            return
        exact = ancestors(nodes, scene.case)
        moved = exact.clone()
        for first, parents in single_trees(nodes, scene.case.mask.packed):
            rows = torch.arange(len(parents))
            moved[first + rows] = exact[first + (rows - by).clamp(0, max(len(parents) - 1, 0))]
        if not torch.equal(moved, exact):
            yield Alternative(inputs=with_parts(scene, tree=tree(scene, moved)))

    return build


def _pattern(kind: str, words: str) -> tuple[Semantics, ...]:
    """The places that both kinds have in common."""
    unit = "row" if kind == "bitmap" else "block of rows"
    found: tuple[tuple[str, str, Change], ...] = (
        ("of-row-before", f"a {unit} reads {words} of the one before it", _row_before),
        ("of-row-after", f"a {unit} reads {words} of the one after it", _row_after),
        ("key-before", f"{words} is read one {unit.replace('row', 'key')} too early", _key_before),
        ("of-first-head", f"every head reads {words} of the first one", lambda _s, x: x[:, :1].expand_as(x)),
        ("of-next-head", f"a head reads {words} of the next one", lambda _s, x: x.roll(-1, 1)),
        ("of-first-sequence", f"every entry of the batch reads {words} of the first one", _first_entry),
    )
    return tuple(
        Semantics(name=f"{kind}-{name}", sentence=sentence, build=_read(kind, change))
        for name, sentence, change in found
    )


def _first_entry(_scene: Scene, table: Tensor) -> Tensor:
    return table[:1].expand_as(table)


PATTERN_PLACES = (
    *_pattern("bitmap", "the bitmap"),
    Semantics(
        name="bitmap-bytes-reversed",
        sentence="the bytes of each 32-bit word of the bitmap are read in reverse order",
        build=_read("bitmap", _bytes_reversed),
    ),
    Semantics(
        name="bitmap-words-by-bytes",
        sentence="words of the bitmap are looked for at the number of the byte",
        build=_read("bitmap", _words_by_bytes),
    ),
    Semantics(
        name="bits-of-first-words",
        sentence="the bits of a bitmap or tree behind the first words are taken for those of the first ones again",
        build=_first_words,
        one_way=True,
    ),
    Semantics(
        name="bitmap-counted-in-sequence",
        sentence="the bitmap of a packed buffer is read by numbers inside a sequence",
        build=_in_sequence("bitmap"),
    ),
    Semantics(
        name="blocks-counted-in-sequence",
        sentence="the block-sparse pattern of a packed buffer is read by numbers inside a sequence",
        build=_in_sequence("blocks"),
    ),
    *_pattern("blocks", "the block-sparse pattern"),
    Semantics(
        name="blocks-of-kv-head",
        sentence="the block-sparse pattern is that of the query head with the number of the kv head",
        build=_read("blocks", _kv_head),
    ),
    Semantics(
        name="blocks-batch-head-exchanged",
        sentence="the strides of the block-sparse pattern over batches and heads are exchanged",
        build=_exchanged_blocks,
    ),
    Semantics(
        name="blocks-last-missing",
        sentence="the last live block of each block of rows is left out",
        build=_read("blocks", _last_missing),
    ),
    Semantics(
        name="blocks-first-missing",
        sentence="the first live block of each block of rows is left out",
        build=_read("blocks", _first_missing),
    ),
    Semantics(
        name="tree-of-node-before",
        sentence="a tree node sees what the node before it is to see",
        build=_tree_row(1),
    ),
    Semantics(
        name="tree-of-node-after",
        sentence="a tree node sees what the node after it is to see",
        build=_tree_row(-1),
    ),
)
