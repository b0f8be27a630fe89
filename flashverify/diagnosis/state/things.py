"""The things of a problem that a kernel may keep, each with the problem in which that thing alone is another problem's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flashverify.case.masks.mask import PARTS
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.case.problem import Pages, Problem

    Exchange = Callable[[Problem, Problem], Problem | None]

__all__ = ["SEVERAL", "THINGS", "Thing"]

_MASK_TENSORS = {part.name: tuple(spec.name for spec in part.tensors) for part in PARTS}


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that a problem has.

    Attributes:
        name: in the name of a diagnosis.
        words: what it is called in a sentence.
        plural: whether `words` is a plural.
        put: the first problem with the thing of the second one; None where both have the same, or where there is no such problem.
    """

    name: str
    words: str
    plural: bool
    put: Exchange


def _tensors(*names: str, together: bool = False) -> Exchange:
    """Tensors by name; `together` asks that more than one of them differs."""

    def put(later: Problem, earlier: Problem) -> Problem | None:
        found: dict[str, Tensor] = {}
        for name in names:
            mine, other = getattr(later, name), getattr(earlier, name)
            if mine is None or other is None or (mine.shape, mine.dtype) != (other.shape, other.dtype):
                continue
            if not torch.equal(mine, other):
                found[name] = other
        return dataclasses.replace(later, **found) if len(found) > together else None  # type: ignore[arg-type]

    return put


def _given(name: str, section: str, field: str) -> Exchange:
    """A tensor that both have, or that the earlier problem alone has: then the later one is given it with its `section.field` of the case."""
    both = _tensors(name)

    def put(later: Problem, earlier: Problem) -> Problem | None:
        other: Tensor | None = getattr(earlier, name)
        if other is None or getattr(later, name) is not None:
            return both(later, earlier)
        mine, theirs = getattr(later.case, section), getattr(earlier.case, section)
        changes: dict[str, Any] = {section: dataclasses.replace(mine, **{field: getattr(theirs, field)})}
        try:
            return dataclasses.replace(later, case=dataclasses.replace(later.case, **changes), **{name: other})  # type: ignore[arg-type]
        except UsageError:
            return None

    return put


def _parts(*names: str, together: bool = False) -> Exchange:
    """Parts of the mask by name, with their tensors."""

    def put(later: Problem, earlier: Problem) -> Problem | None:
        mine, other = later.case.mask, earlier.case.mask
        changed = {name: getattr(other, name) for name in names if getattr(mine, name) != getattr(other, name)}
        if len(changed) <= together:
            return None
        try:
            case = dataclasses.replace(later.case, mask=dataclasses.replace(mine, **changed))
        except UsageError:
            return None
        tensors: dict[str, Any] = {each: getattr(earlier, each) for name in changed for each in _MASK_TENSORS[name]}
        return dataclasses.replace(later, case=case, **tensors)

    return put


def _side(number: int) -> Exchange:
    """One side of a window that is bounded on it in both problems."""

    def put(later: Problem, earlier: Problem) -> Problem | None:
        mine, other = later.case.mask.window, earlier.case.mask.window
        if mine is None or other is None or None in (mine[number], other[number]) or mine[number] == other[number]:
            return None
        window = (other[0], mine[1]) if number == 0 else (mine[0], other[1])
        try:
            case = dataclasses.replace(later.case, mask=dataclasses.replace(later.case.mask, window=window))
        except UsageError:
            return None
        return dataclasses.replace(later, case=case)

    return put


def _alignment(later: Problem, earlier: Problem) -> Problem | None:
    """The end at which the diagonal of a causal mask or a window lies."""
    mask, end = later.case.mask, earlier.case.mask.aligned_at_end
    if mask.aligned_at_end == end:
        return None
    if mask.causal is not None:
        mask = dataclasses.replace(mask, causal="bottom-right" if end else "top-left")
    elif mask.window is not None:
        mask = dataclasses.replace(mask, window_alignment="bottom-right" if end else None)
    else:
        return None
    try:
        return dataclasses.replace(later, case=dataclasses.replace(later.case, mask=mask))
    except UsageError:
        return None


def _longer(name: str) -> Exchange:
    """Lengths of which each is the longer one of both problems."""

    def put(later: Problem, earlier: Problem) -> Problem | None:
        mine, other = getattr(later.case.mask, name), getattr(earlier.case.mask, name)
        if mine is None or other is None or len(mine) != len(other):
            return None
        longer = tuple(map(max, mine, other))
        if longer in (mine, other):  # then it is those of one call
            return None
        changes: dict[str, Any] = {name: longer}
        tensors: dict[str, Any] = {name: getattr(later, name).new_tensor(longer)}
        try:
            case = dataclasses.replace(later.case, mask=dataclasses.replace(later.case.mask, **changes))
        except UsageError:
            return None
        return dataclasses.replace(later, case=case, **tensors)

    return put


def _field(of: Callable[[Problem], Any], changes: Callable[[Problem, Any], dict[str, Any]]) -> Exchange:
    """A number of the case."""

    def put(later: Problem, earlier: Problem) -> Problem | None:
        if of(later) == of(earlier):
            return None
        case = dataclasses.replace(later.case, **changes(later, of(earlier)))
        return dataclasses.replace(later, case=case)

    return put


def _softcap(later: Problem, value: Any) -> dict[str, Any]:
    return {"logits": dataclasses.replace(later.case.logits, softcap=value)}


def _seed(later: Problem, value: Any) -> dict[str, Any]:
    return {"values": dataclasses.replace(later.case.values, seed=value)}


def _draws(later: Problem, earlier: Problem) -> Problem | None:
    return _field(lambda p: p.case.values.seed, _seed)(later, earlier) if later.case.dropout else None


def _page_table(later: Problem, earlier: Problem) -> Problem | None:
    """K and V as the table of the other problem finds them in the pages of this one; of values, not of codes."""
    pages, other = later.pages, earlier.pages
    if pages is None or other is None or later.k_codes is not None or pages.table.equal(other.table):
        return None
    if pages.table.shape != other.table.shape:
        return None
    size, keys = later.case.storage.page_size or 1, later.case.seq_k
    k, v = (_paged(pool, other, keys, size) for pool in (pages.k, pages.v))
    return dataclasses.replace(later, pages=None, k=k, v=v)


def _paged(pool: Tensor, pages: Pages, keys: int, size: int) -> Tensor:
    """`[B, Hkv, keys, D]`: what the table names; an entry that names no page is read as page 0."""
    key = torch.arange(keys)
    page = pages.table.long()[:, key // size]
    page = torch.where((page >= 0) & (page < pool.shape[0]), page, 0)
    return pool[page, (key % size).expand_as(page)].transpose(1, 2)


_MASKS = tuple(part.name for part in PARTS)

THINGS = (
    Thing("key-lengths", "key lengths", True, _parts("key_lengths")),
    Thing("query-lengths", "query lengths", True, _parts("query_lengths")),
    Thing("cu-seqlens", "boundaries of the packed sequences (cu_seqlens)", True, _parts("packed")),
    Thing("prefix-lengths", "prefix lengths", True, _parts("prefix_lengths")),
    Thing("page-table", "page table", False, _page_table),
    Thing("tree", "tree", False, _parts("tree")),
    Thing("bitmap", "bitmap", False, _parts("bitmap")),
    Thing("blocks", "block-sparse pattern", False, _parts("blocks")),
    Thing("selection", "selected blocks", True, _parts("selection")),
    Thing("causal", "causal flag", False, _parts("causal")),
    Thing("alignment", "alignment of the diagonal", False, _alignment),
    Thing("window", "window", False, _parts("window", "window_alignment")),
    Thing("window-left", "left side of the window", False, _side(0)),
    Thing("window-right", "right side of the window", False, _side(1)),
    Thing("scale", "scale of the logits", False, _field(lambda p: p.scale, lambda _, x: {"scale": x})),
    Thing("softcap", "softcap", False, _field(lambda p: p.softcap, _softcap)),
    Thing("dropout", "probability of dropout", False, _field(lambda p: p.case.dropout, lambda _, x: {"dropout": x})),
    Thing("dropout-seed", "draws of dropout", True, _draws),
    Thing("bias", "bias", False, _given("bias", "logits", "bias")),
    Thing("slopes", "slopes of ALiBi", True, _given("slopes", "logits", "alibi")),
    Thing("sink", "sinks", True, _given("sink", "logits", "sink")),
    Thing("relative-bias", "relative bias", False, _tensors("relative_bias")),
    Thing("distance-buckets", "buckets of the relative bias", True, _tensors("distance_buckets")),
    Thing("scales-of-codes", "scales of the codes of K and V", True, _tensors("k_scale", "v_scale")),
    Thing("scale-of-k", "scales of the codes of K", True, _tensors("k_scale")),
    Thing("scale-of-v", "scales of the codes of V", True, _tensors("v_scale")),
    Thing("zero-points", "zero points of the codes", True, _tensors("k_zero", "v_zero")),
    Thing("scale-of-q", "scales of the codes of Q", True, _tensors("q_scale")),
    Thing("k", "K", False, _tensors("k", "k_codes", "k_scale", "k_zero")),
    Thing("v", "V", False, _tensors("v", "v_codes", "v_scale", "v_zero")),
    Thing("q", "Q", False, _tensors("q", "q_codes", "q_scale")),
    Thing("do", "dO", False, _tensors("do")),
    Thing("dlse", "dLSE", False, _given("dlse", "grad", "dlse")),
)
"""One at a time, the ones that are most often kept first."""

SEVERAL = (
    Thing("longest-key-lengths", "longer ones of the key lengths", True, _longer("key_lengths")),
    Thing("longest-query-lengths", "longer ones of the query lengths", True, _longer("query_lengths")),
    Thing("lengths", "key and query lengths", True, _parts("key_lengths", "query_lengths", together=True)),
    Thing("mask", "mask", False, _parts(*_MASKS, together=True)),
    Thing("k-and-v", "K and V", True, _tensors("k", "v", together=True)),
    Thing("q-and-k", "Q and K", True, _tensors("q", "k", together=True)),
)
"""Things that are kept together; tried where no single one fits."""
