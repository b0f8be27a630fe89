"""Cases with another value of one of their options: what a kernel does may depend on the value, or look like something else at one value.

Importing this module loads no torch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.case.changes import change
from flashverify.diagnosis.related_cases import grown
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask, Selection
    from flashverify.case.supports import Supports

__all__ = ["other_settings", "usual_settings"]

_CAPS = (0.5, 50.0, 2.0, 8.0)
_DROPPED = (0.5, 0.1, 0.9)
_PAGES = (16, 3, 1, 64)
_USUAL_PAGES = (16, 8, 32, 64, 128, 4, 5, 3)
_FEW = 3
_MOST_NAMED = 230
"""In 256, the entries of a list that name a block."""
_SMALL = 2
"""Up to this a number of keys or rows that share something cannot be told from one of them, or from a neighbour."""
_MORE = ((5, 37), (5, 41), (0, 37), (0, 41))
"""Rows and keys that are added where options are made usual."""


def other_settings(supports: Supports, case: Case) -> Iterator[Case]:
    """Cases that `supports` accepts, each with another value of one of the options that `case` has; those of each option one after the other."""
    seen = {case}
    for each in (*_of_logits(case), *_of_scale(case), *_of_storage(supports, case), *_of_mask(supports, case)):
        if each is not None and each not in seen and supports.refusal(each) is None:
            seen.add(each)
            yield each


def usual_settings(supports: Supports, case: Case) -> Iterator[Case]:
    """Larger cases with usual values of the options of `case` that have the smallest ones; none where there are none.

    With pages or blocks of a single key a page is a key, so that what is wrong with one looks like something that is wrong with the other.
    """
    storage, mask = case.storage, case.mask
    if storage.page_size is not None and storage.page_size <= _SMALL:
        sizes = [size for size in _USUAL_PAGES if not supports.page_sizes or size in supports.page_sizes]
        storage = replace(storage, page_size=sizes[0]) if sizes else storage
    lists = mask.selection
    if lists is not None and lists.keys <= _SMALL:
        mask = _masked(mask, selection=_usual_lists(supports, lists)) or mask
    if (storage, mask) == (case.storage, case.mask):
        return
    usual, size = replace(case, storage=storage, mask=mask), storage.page_size or 1
    for number, (rows, keys) in enumerate(_MORE):
        whole = -(case.seq_k + keys) % size * (number % 2)  # the last page full, as the pages of a single key are
        found = grown(usual, rows, keys + whole, regime="normal", seed=case.values.seed + 1 + number)
        if found is not None and found.mask.selection is not None:  # most blocks are named
            full = replace(found.mask.selection, live=_MOST_NAMED)
            found = replace(found, mask=replace(found.mask, selection=full))
        if found is not None and supports.refusal(found) is None:
            yield found


def _usual_lists(supports: Supports, lists: Selection) -> Selection:
    """Lists of as many entries as a small case has blocks, of several keys each."""
    takes = supports.selections
    keys = next((n for n in _USUAL_PAGES if n in takes.keys), max(takes.keys))
    rows = next((n for n in sorted(takes.rows) if n > 1), max(takes.rows))
    return replace(lists, keys=keys, rows=rows, entries=max(lists.entries, 6), live=_MOST_NAMED)


def _masked(mask: Mask, **changed: Any) -> Mask | None:
    """The mask with some parts exchanged; None where they do not go together."""
    try:
        return replace(mask, **changed)
    except (UsageError, TypeError):
        return None


def _of_logits(case: Case) -> Iterator[Case | None]:
    logits = case.logits
    changes: list[dict[str, Any]] = []
    if logits.softcap:
        changes += [{"softcap": cap} for cap in _CAPS]
    if logits.alibi:
        changes.append({"alibi": True if logits.alibi == "wild" else "wild"})
    if logits.bias:
        changes += [{"bias": shared} for shared in ("full", "head", "shared")]
    if logits.relative_bias:
        buckets, far, both = logits.relative_bias
        changes += [
            {"relative_bias": (max(buckets + buckets % 2, 4), max(far, 3), not both)},
            {"relative_bias": (8, 7, both)},
            {"relative_bias": (8, 20, not both)},
        ]
    for each in changes:
        try:
            yield change(case, logits=replace(logits, **each))
        except UsageError:
            continue
    if case.dropout:
        yield from (change(case, dropout=p) for p in _DROPPED)


def _of_scale(case: Case) -> Iterator[Case | None]:
    """A scale of the other sign, 0, 1 and none."""
    if case.scale is not None:
        scale = abs(case.scale) or case.dim_qk**-0.5
        yield from (change(case, scale=x) for x in (None, 0.0, -scale, scale, 1.0, 2 * scale))


def _of_storage(supports: Supports, case: Case) -> Iterator[Case | None]:
    if case.storage.page_size is not None:
        for size in dict.fromkeys((*_PAGES, *supports.page_sizes)):
            yield change(case, storage=replace(case.storage, page_size=size))


def _of_mask(supports: Supports, case: Case) -> Iterator[Case | None]:
    """Other lengths, sides, blocks, prefixes and trees."""
    mask, rows, keys = case.mask, case.seq_q, case.seq_k
    changes: list[dict[str, Any]] = []
    for name, size in (("key_lengths", keys), ("query_lengths", rows)):
        given = getattr(mask, name)
        if given is not None:
            changes += [{name: (0, *given[1:])}, {name: (size,) * len(given)}, {name: (max(size - 1, 0),) * len(given)}]
    if mask.prefix_lengths is not None:
        count = len(mask.prefix_lengths)
        changes += [{"prefix_lengths": (n,) * count} for n in (0, 1, keys, min(rows, keys))]
    if mask.window is not None:
        left, right = mask.window
        changes += [{"window": side} for side in ((left, None), (None, right), (0, right), (left, 0))]
    if mask.selection is not None:
        lists = mask.selection
        takes = supports.selections
        listed: list[dict[str, Any]] = [
            *({"keys": n} for n in takes.keys[:_FEW]),
            *({"rows": n} for n in takes.rows[:_FEW]),
            {"entries": lists.entries + 2},
            {"each": not lists.each},
        ]
        changes += [{"selection": replace(lists, **x)} for x in listed]
    if mask.blocks is not None:
        blocks = mask.blocks
        changes += [
            {"blocks": replace(blocks, **x)}
            for x in ({"rows": 16, "keys": 32}, {"rows": 32, "keys": 16}, {"each": not blocks.each})
        ]
    if mask.tree and mask.packed is None and not isinstance(mask.tree[0], tuple):
        nodes = range(len(mask.tree))
        changes += [
            {"tree": tuple(n - 1 for n in nodes)},
            {"tree": (-1,) * len(nodes)},
            {"tree": tuple(-1 if n == 0 else (n - 1) // 2 for n in nodes)},
        ]
    for each in changes:
        other = _masked(mask, **each)
        yield None if other is None else change(case, mask=other)
