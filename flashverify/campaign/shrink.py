"""The shrinker: from a failing case to simpler ones, axis by axis.

It works on cases, not on the random choices that drew them, so one shrinker serves what the search found, what the fixed
matrix found, a finding of an interrupted run, and a case that kills its process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.case.case import REGIMES, Case, Grad, Logits, Storage
from flashverify.case.mask import Mask
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

__all__ = ["measure", "shrink"]

_MASK_PARTS = ("causal", "window", "key_lengths", "query_lengths", "packed", "tree", "blocks", "bitmap")
_DIMS = (1, 8, 16, 32, 64, 128)
_PLAIN_REGIMES = ("zeros", "integers", "normal")


def measure(case: Case) -> tuple[int, int, str]:
    """Order of simplicity: elements of the problem first, then the length of its text form."""
    pairs = (case.seq_q + 1) * (case.seq_k + 1) * (case.dim_qk + case.dim_v)
    text = str(case)
    return (case.batch * case.heads_q * pairs, len(text), text)


def shrink(case: Case) -> Generator[Case, bool, Case]:
    """Yields candidates simpler than the smallest failing case so far; send True where one fails, False where not.

    Deterministic; each candidate is yielded once. Returns the smallest failing case when no simplification is left.
    """
    seen = {case}
    progress = True
    while progress:
        progress = False
        for propose in _PASSES:
            accepted = True
            while accepted:
                accepted = False
                for candidate in propose(case):
                    if candidate is None or candidate in seen:
                        continue
                    seen.add(candidate)
                    if (yield candidate):
                        case, accepted, progress = candidate, True, True
                        break
    return case


def _change(case: Case, **changes: Any) -> Case | None:
    """`case` with axes replaced and what depends on them cut to fit; None where no such case exists."""
    try:
        mask = changes.pop("mask", case.mask)
        batch = changes.get("batch", case.batch)
        seq_q, seq_k = changes.get("seq_q", case.seq_q), changes.get("seq_k", case.seq_k)
        if mask.key_lengths is not None:
            mask = replace(mask, key_lengths=tuple(min(n, seq_k) for n in mask.key_lengths[:batch]))
        if mask.query_lengths is not None:
            mask = replace(mask, query_lengths=tuple(min(n, seq_q) for n in mask.query_lengths[:batch]))
        if mask.tree is not None:
            mask = replace(mask, tree=mask.tree[:seq_q])
        values = changes.pop("values", case.values)
        bare = replace(case, **changes, mask=mask, values=replace(values, edits=()))
        shapes = {"q": bare.shape_q, "k": bare.shape_k, "v": bare.shape_v, "do": bare.shape_o}
        fitting = (e for e in values.edits if all(i < n for i, n in zip(e.index, shapes[e.tensor], strict=True)))
        return replace(bare, values=replace(values, edits=tuple(fitting)))
    except UsageError:
        return None


def _down(value: int, low: int) -> Iterator[int]:
    """Smaller numbers, boldest first: low, then halving the step back up to value - 1."""
    step = value - low
    while step > 0:
        yield value - step
        step //= 2


def _parts_off(case: Case) -> Iterator[Case | None]:
    plain = _change(case, mask=Mask(), logits=Logits(), storage=Storage(), launch=(), dropout=0.0, scale=None)
    yield plain
    yield _change(case, mask=Mask())
    for name in _MASK_PARTS:
        if getattr(case.mask, name) is not None:
            yield _change(case, mask=replace(case.mask, **{name: None}))
    yield _change(case, logits=Logits())
    yield _change(case, launch=())
    for dropped in case.launch:
        yield _change(case, launch=tuple(pair for pair in case.launch if pair != dropped))
    yield _change(case, dropout=0.0)
    yield _change(case, scale=None)
    if case.scale is not None and case.scale not in (1.0, 0.0):
        yield _change(case, scale=1.0)


def _storage(case: Case) -> Iterator[Case | None]:
    yield _change(case, storage=Storage())
    for name in ("layout", "gap", "offset", "expand", "padding", "page_size"):
        yield _change(case, storage=replace(case.storage, **{name: getattr(Storage(), name)}))
    for name in ("gap", "offset"):
        for value in (8, 1):
            if value < getattr(case.storage, name):
                smaller: dict[str, Any] = {name: value}
                yield _change(case, storage=replace(case.storage, **smaller))


def _grad(case: Case) -> Iterator[Case | None]:
    for grad in (Grad(backward=False), Grad(), replace(case.grad, dlse=False), replace(case.grad, do="dense")):
        if grad.backward <= case.grad.backward:
            yield _change(case, grad=grad)


def _batch(case: Case) -> Iterator[Case | None]:
    mask = case.mask
    if case.batch > 1 and (mask.key_lengths or mask.query_lengths):
        for b in range(case.batch):  # each sequence alone, with its own lengths
            keys = mask.key_lengths and (mask.key_lengths[b],)
            queries = mask.query_lengths and (mask.query_lengths[b],)
            yield _change(case, batch=1, mask=replace(mask, key_lengths=keys, query_lengths=queries))
    for batch in _down(case.batch, 1):
        yield _change(case, batch=batch)


def _heads(case: Case) -> Iterator[Case | None]:
    group = case.heads_q // case.heads_kv
    yield _change(case, heads_q=1, heads_kv=1)
    yield _change(case, heads_q=group, heads_kv=1)
    yield _change(case, heads_q=case.heads_kv)
    for factor in _down(group, 1):
        yield _change(case, heads_q=factor * case.heads_kv)
    for heads in _down(case.heads_kv, 1):
        yield _change(case, heads_q=heads * group, heads_kv=heads)


def _sequences(case: Case) -> Iterator[Case | None]:
    smaller = min(case.seq_q, case.seq_k)
    yield _change(case, seq_q=min(smaller, 1), seq_k=min(smaller, 1))
    if case.seq_q != case.seq_k:
        yield _change(case, seq_q=smaller, seq_k=smaller)
    for step in (case.seq_q - size for size in _down(case.seq_q, 1)):
        yield _change(case, seq_q=case.seq_q - step, seq_k=max(min(case.seq_k, 1), case.seq_k - step))
    for size in _down(case.seq_q, 1):
        yield _change(case, seq_q=size)
    for size in _down(case.seq_k, 1):
        yield _change(case, seq_k=size)


def _dims(case: Case) -> Iterator[Case | None]:
    for dim in _DIMS:
        if dim < max(case.dim_qk, case.dim_v):
            yield _change(case, dim_qk=min(dim, case.dim_qk), dim_v=min(dim, case.dim_v))
    yield _change(case, dim_qk=min(case.dim_qk, case.dim_v), dim_v=min(case.dim_qk, case.dim_v))
    for dim in _DIMS:
        if dim < case.dim_qk:
            yield _change(case, dim_qk=dim)
        if dim < case.dim_v:
            yield _change(case, dim_v=dim)
    for eighths in _down(-(-case.dim_qk // 8), 1):
        yield _change(case, dim_qk=8 * eighths)
    for eighths in _down(-(-case.dim_v // 8), 1):
        yield _change(case, dim_v=8 * eighths)


def _values(case: Case) -> Iterator[Case | None]:
    values = case.values
    rank = REGIMES.index(values.regime)
    yield _change(case, values=replace(values, edits=()))
    for dropped in values.edits:
        yield _change(case, values=replace(values, edits=tuple(e for e in values.edits if e != dropped)))
    for regime in (*_PLAIN_REGIMES, *(r for r in REGIMES if r not in _PLAIN_REGIMES)):
        if REGIMES.index(regime) < rank:
            yield _change(case, values=replace(values, regime=regime))
    for seed in (0, 1, 2):
        if seed < values.seed:
            yield _change(case, values=replace(values, seed=seed))


def _mask_numbers(case: Case) -> Iterator[Case | None]:
    mask = case.mask
    for name in ("key_lengths", "query_lengths"):
        lengths: tuple[int, ...] = getattr(mask, name) or ()
        for b, length in enumerate(lengths):
            for size in _down(length, 0):
                changed: dict[str, Any] = {name: (*lengths[:b], size, *lengths[b + 1 :])}
                yield _change(case, mask=replace(mask, **changed))
    left, right = mask.window or (None, None)
    if left is not None and right is not None:
        yield _change(case, mask=replace(mask, window=(None, right)))
        yield _change(case, mask=replace(mask, window=(left, None)))
    for width in _down(left or 0, 0):
        yield _change(case, mask=replace(mask, window=(width, right)))
    for width in _down(right or 0, 0):
        yield _change(case, mask=replace(mask, window=(left, width)))


_PASSES: tuple[Callable[[Case], Iterator[Case | None]], ...] = (
    _parts_off,
    _batch,
    _heads,
    _sequences,
    _dims,
    _storage,
    _grad,
    _values,
    _mask_numbers,
)
