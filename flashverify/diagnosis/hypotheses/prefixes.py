"""Wrong semantics of the prefixes that open a causal mask."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.case.masks.prefix_lengths import in_prefix
from flashverify.diagnosis.features import lengths as sizes_of
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import all_pairs, parts, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.case.masks.pairs import Pairs
    from flashverify.diagnosis.observation import Scene

__all__ = ["PREFIXES"]


def _prefix(
    opened: Callable[[Pairs, tuple[int, ...]], Tensor], part: str = ""
) -> Callable[[Scene], Iterator[Alternative]]:
    """The causal mask opened where `opened` says, in place of its prefix; or another part of the mask, besides."""

    def build(scene: Scene) -> Iterator[Alternative]:
        lengths, found = scene.case.mask.prefix_lengths, parts(scene)
        if not lengths or (part and part not in found):
            return
        pairs = all_pairs(scene)
        if part:
            found[part] = found[part] | opened(pairs, lengths)
        else:
            found["causal"] = (pairs.key <= pairs.position) | opened(pairs, lengths)
        yield Alternative(inputs=replace(scene.inputs, visible=seen(found)))

    return build


def _beyond_its_sequence(pairs: Pairs, lengths: tuple[int, ...]) -> Tensor:
    """Keys of the buffer from the begin of the row's sequence on, as many as its prefix has, whosever they are."""
    packed = pairs.case.mask.packed
    starts = pairs.key.new_tensor((0,) * (len(lengths) + 1) if packed is None else packed.cu_k)
    place = pairs.key_index - starts[pairs.row_sequence]
    return (place >= 0) & (place < pairs.key.new_tensor((*lengths, 0))[pairs.row_sequence])


def _each(lengths: tuple[int, ...], pairs: Pairs, change: Callable[[int, int, int], int]) -> tuple[int, ...]:
    """Other prefixes, by the rows and keys of each sequence."""
    sizes = sizes_of(pairs.case)
    return tuple(change(n, *size) for n, size in zip(lengths, sizes, strict=False))


PREFIXES = (
    Semantics(
        name="prefix-moves-the-diagonal",
        sentence="the causal diagonal begins behind the prefix: every row sees as many keys after its own",
        build=_prefix(lambda p, lengths: p.key <= p.position + p.key.new_tensor((*lengths, 0))[p.row_sequence]),
    ),
    Semantics(name="prefix-ignored", sentence="the prefix is ignored", build=_prefix(lambda p, _: p.key < 0)),
    Semantics(
        name="prefix-one-key-more",
        sentence="the prefix is one key longer than declared",
        build=_prefix(lambda p, n: in_prefix(p, tuple(x + 1 for x in n))),
    ),
    Semantics(
        name="prefix-one-key-less",
        sentence="the prefix is one key shorter than declared",
        build=_prefix(lambda p, n: in_prefix(p, tuple(x - 1 for x in n))),
    ),
    Semantics(
        name="prefix-within-the-rows",
        sentence="a prefix ends at the number of rows where it is longer",
        build=_prefix(lambda p, n: in_prefix(p, _each(n, p, lambda x, rows, _keys: min(x, rows)))),
    ),
    Semantics(
        name="prefix-within-the-extra-keys",
        sentence="a prefix is as long as there are more keys than rows, at most",
        build=_prefix(lambda p, n: in_prefix(p, _each(n, p, lambda x, rows, keys: min(x, max(keys - rows, 0))))),
    ),
    Semantics(
        name="prefix-before-the-rows",
        sentence="a prefix counts beside the keys that there are more than rows: it is that much longer",
        build=_prefix(lambda p, n: in_prefix(p, _each(n, p, lambda x, rows, keys: x + max(keys - rows, 0)))),
    ),
    Semantics(
        name="prefix-of-first-sequence",
        sentence="every sequence has the prefix of the first one",
        build=_prefix(lambda p, n: in_prefix(p, n[:1] * len(n))),
    ),
    Semantics(
        name="prefix-of-the-longest",
        sentence="every sequence has the longest of all prefixes",
        build=_prefix(lambda p, n: in_prefix(p, (max(n),) * len(n))),
    ),
    Semantics(
        name="prefix-of-the-shortest",
        sentence="every sequence has the shortest of all prefixes",
        build=_prefix(lambda p, n: in_prefix(p, (min(n),) * len(n))),
    ),
    Semantics(
        name="prefix-of-last-sequence",
        sentence="every sequence has the prefix of the last one",
        build=_prefix(lambda p, n: in_prefix(p, n[-1:] * len(n))),
    ),
    Semantics(
        name="prefix-of-next-sequence",
        sentence="a sequence has the prefix of the next one",
        build=_prefix(lambda p, n: in_prefix(p, (*n[1:], n[-1]))),
    ),
    Semantics(
        name="prefix-of-buffer",
        sentence="the prefix of a packed sequence is counted from the begin of the buffer",
        build=_prefix(lambda p, n: in_prefix(replace(p, key=p.key_index), n)),
    ),
    Semantics(
        name="prefix-over-next-sequence",
        sentence="a prefix that is longer than its packed sequence goes on in the next one",
        build=_prefix(_beyond_its_sequence, "sequence"),
    ),
    Semantics(
        name="prefix-outside-window",
        sentence="the left side of the window does not hide keys of the prefix",
        build=_prefix(in_prefix, "left"),
    ),
)
