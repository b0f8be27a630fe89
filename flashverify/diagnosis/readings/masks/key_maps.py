"""Keys that are read in place of others in a paged cache, in words, and how often each key then enters a row."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.masks.ends import key_of, visible_of
from flashverify.diagnosis.readings.masks.extent import Extent
from flashverify.diagnosis.readings.masks.splits import splits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    KeyMap = Callable[[Tensor, Tensor, int], Tensor]
    Parted = Callable[[Tensor, Tensor, int], Tensor]
    Cut = Callable[[Tensor, int, int], Tensor | int]

__all__ = ["counts_of_other_keys", "in_pages_of_parts", "page_maps"]

_PARTS = (1, 2, 3, 4)
"""Parts of the keys where neither the launch nor the subject says how many there are."""
_MAPS: tuple[tuple[str, KeyMap], ...] = (
    ("a key in the last slot of a page is read from the next page", lambda j, n, s: (j + 1) // s * s + j % s),
    (
        "a key in the first slot of a page is read from the page before",
        lambda j, n, s: (j - 1).clamp(min=0) // s * s + j % s,
    ),
    (
        "key j is read from the next page, in the last page from its own",
        lambda j, n, s: torch.where((j // s + 1) * s < n, j + s, j),
    ),
    (
        "key j is read from the page before, in the first page from its own",
        lambda j, n, s: torch.where(j >= s, j - s, j),
    ),
    ("every key is read from the first page", lambda j, n, s: j % s),
    (
        "key j is read from the next slot of its page, the last one from the first",
        lambda j, n, s: j // s * s + (j + 1) % s,
    ),
    ("key j is read from the slot before, the first one from the last", lambda j, n, s: j // s * s + (j - 1) % s),
    ("the slots of a page are read in reverse", lambda j, n, s: j // s * s + s - 1 - j % s),
    ("key j is read from slot (j % page size) // 2 of its page", lambda j, n, s: j // s * s + j % s // 2),
    ("key j is read from the first slot of its page", lambda j, n, s: j // s * s),
    ("every second page is read in place of the next one", lambda j, n, s: j // (2 * s) * 2 * s + j % s),
)
_TILED = (16, 32, 64, 128)
_TABLES = (2, 3, 4, 8, 16, 32, 64, 128)
_LEARNED: tuple[tuple[str, KeyMap], ...] = (
    *(
        (f"page number n of a sequence is taken for n % {c}", partial(lambda j, n, s, c: j // s % c * s + j % s, c=c))
        for c in _TABLES
    ),
    *(
        (
            f"page number n of a sequence is taken for min(n, {c - 1})",
            partial(lambda j, n, s, c: (j // s).clamp(max=c - 1) * s + j % s, c=c),
        )
        for c in _TABLES
    ),
    *(
        (
            f"key j is read from the page of the first key of its tile of {t}",
            partial(lambda j, n, s, t: j // t * t // s * s + j % s, t=t),
        )
        for t in _TILED
    ),
)
"""Page tables with room for few entries, and pages that are looked up once for a tile."""
_PARTED: tuple[tuple[str, Parted], ...] = (
    (
        "the page of key j is counted from the page in which its part begins, in whole pages from the part's first key on: where a part "
        "begins inside a page, keys are read from the page before",
        lambda j, first, s: (first // s + (j - first) // s) * s + j % s,
    ),
    (
        "the slot of key j in its page is counted from the first key of its part",
        lambda j, first, s: j // s * s + (j - first) % s,
    ),
    (
        "a part of the keys is read from the page in which it begins, from that page's first slot on",
        lambda j, first, s: first // s * s + j - first,
    ),
    ("a part of the keys is read from the first key on", lambda j, first, s: j - first),
)
_CUTS: tuple[tuple[str, Cut], ...] = (
    ("Sk * part // parts", lambda n, a, parts: n * a // parts),
    ("ceil(Sk / parts) * part", lambda n, a, parts: torch.minimum(n, a * -(-n // parts))),
    ("Sk // parts * part", lambda n, a, parts: a * (n // parts)),
)


def counts_of_other_keys() -> Iterator[tuple[str, Callable[[Scene], Tensor | None]]]:
    """What is read of which key in words, and how often each key then enters each row, int64 `[B, Hq, Sq, Sk]`; None without pages."""
    for words, to in (*_MAPS, *_LEARNED):
        yield words, partial(_counts, to=partial(_of_pages, to=to))
    for words, parted in _PARTED:
        for cut, begins in _CUTS:
            for parts in _PARTS:
                number = f", parts = {parts} where the launch does not say so" if parts > 1 else ""
                yield (
                    f"{words} (a part begins at key {cut}{number})",
                    partial(_counts, to=partial(_of_parts, parted=parted, cut=begins, parts=parts)),
                )


def page_maps() -> Iterator[tuple[str, KeyMap]]:
    """What is read of which key in words, and the numbers that are read in place of those of keys, given how many there are and the size of a page."""
    yield from _MAPS
    yield from _LEARNED


def in_pages_of_parts() -> Iterator[Extent]:
    """Sets of pairs by the pages inside which parts of the keys begin."""
    for cut, begins in _CUTS:
        for parts in _PARTS:
            number = f", parts = {parts} where the launch does not say so" if parts > 1 else ""
            beside = f"(a part begins at key {cut}{number})"
            for words, before in (
                ("pages in which a part of the keys (a split) begins, before that part", True),
                ("pages in which a part of the keys (a split) begins, from there to the end of the page", False),
            ):
                yield Extent(f"{words} {beside}", partial(_in_pages, cut=begins, parts=parts, before=before))


def _in_pages(scene: Scene, cut: Cut, parts: int, *, before: bool) -> Tensor:
    size, j, found = scene.case.storage.page_size, scene.at.key, torch.zeros(scene.at.key.shape, dtype=torch.bool)
    if size is None:
        return torch.zeros((), dtype=torch.bool)
    for first in _begins(scene, cut, parts)[1:]:
        page = first // size * size
        found |= (j >= page) & (j < first) if before else (j >= first) & (j < page + size) & (first > page)
    return visible_of(scene) & found[:, None, None]


def _begins(scene: Scene, cut: Cut, parts: int) -> list[Tensor]:
    """The first key of each part, `[B, Sk]`."""
    known, n = splits_of(scene), scene.at.key_limit
    parts = known if known > 1 else parts
    return [torch.as_tensor(cut(n, a, parts)).expand(n.shape) for a in range(parts)]


def _of_pages(scene: Scene, j: Tensor, to: KeyMap) -> Tensor:
    size = scene.case.storage.page_size
    assert size is not None
    return to(j, scene.at.key_limit, size)


def _of_parts(scene: Scene, j: Tensor, parted: Parted, cut: Cut, parts: int) -> Tensor:
    size = scene.case.storage.page_size
    assert size is not None
    begins = [torch.where(j >= first, first, 0) for first in _begins(scene, cut, parts)]
    return parted(j, torch.stack(begins).amax(0), size)


def _counts(scene: Scene, to: Callable[[Scene, Tensor], Tensor]) -> Tensor | None:
    if scene.case.storage.page_size is None:
        return None
    see, j = visible_of(scene), key_of(scene).reshape(scene.at.key.shape)
    read = to(scene, j).clamp(0, see.shape[-1] - 1)
    counts = torch.zeros(see.shape, dtype=torch.int64)
    return counts.scatter_add(-1, read[:, None, None].expand(see.shape), see.long())
