"""The shrinker: from a failing case to simpler ones, axis by axis.

It works on cases, not on the random choices that drew them, so one shrinker serves what the search found, what the fixed
matrix found, a finding of an interrupted run, and a case that kills its process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.campaign.shrink.masks import numbers, packed, parts_off, patterns
from flashverify.case.case import PLAIN_POISONS, REGIMES, Case, Grad, Logits, Storage
from flashverify.case.changes import change
from flashverify.case.heads import heads_alone
from flashverify.case.masks.mask import Mask, of_sequences
from flashverify.case.masks.part import down
from flashverify.case.modifiers.logits import modifiers_of
from flashverify.case.quantised.quantised import simpler_quantised
from flashverify.case.shared_kv import shares

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

__all__ = ["measure", "shrink"]

_DIMS = (1, 8, 16, 32, 64, 128)
_SHARED_DIMS = ((16, 8), (24, 16), (40, 32), (72, 64))
"""Channels of K and of a V in its buffer, with some of K beyond V."""
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


def _parts_off(case: Case) -> Iterator[Case | None]:
    plain = change(case, mask=Mask(), logits=Logits(), storage=Storage(), launch=(), dropout=0.0, scale=None)
    yield plain
    yield change(case, mask=Mask())
    yield from parts_off(case)
    yield change(case, logits=Logits())
    yield from _modifiers(case, "logits")
    yield change(case, launch=())
    for dropped in case.launch:
        yield change(case, launch=tuple(pair for pair in case.launch if pair != dropped))
    yield from _modifiers(case, "")
    yield change(case, scale=None)
    if case.scale is not None and case.scale not in (1.0, 0.0):
        yield change(case, scale=1.0)


def _modifiers(case: Case, section: str) -> Iterator[Case | None]:
    """Without each modifier, then with a simpler one."""
    present = [modifier for modifier in modifiers_of(case) if modifier.section == section]
    for modifier in present:
        yield change(case, **modifier.setting(case, modifier.absent))
    for modifier in present:
        for value in modifier.simpler(modifier.of(case)):
            yield change(case, **modifier.setting(case, value))


def _storage(case: Case) -> Iterator[Case | None]:
    yield change(case, storage=Storage())
    for name in ("layout", "gap", "offset", "expand", "padding", "page_size", "kept_pages", "kv"):
        yield change(case, storage=replace(case.storage, **{name: getattr(Storage(), name)}))
    if case.storage.padding == "mixed":
        for poison in PLAIN_POISONS:
            yield change(case, storage=replace(case.storage, padding=poison))
    for name in ("gap", "offset"):
        for value in (8, 1):
            if value < getattr(case.storage, name):
                smaller: dict[str, Any] = {name: value}
                yield change(case, storage=replace(case.storage, **smaller))


def _quantised(case: Case) -> Iterator[Case | None]:
    if case.quantised is not None:
        for simpler in simpler_quantised(case.quantised):
            yield change(case, quantised=simpler)


def _grad(case: Case) -> Iterator[Case | None]:
    for grad in (Grad(backward=False), Grad(), replace(case.grad, dlse=False), replace(case.grad, do="dense")):
        if grad.backward <= case.grad.backward:
            yield change(case, grad=grad)


def _batch(case: Case) -> Iterator[Case | None]:
    mask = case.mask
    if case.batch > 1 and any(part.per_sequence(value, mask) is not None for part, value in mask.given()):
        for b in range(case.batch):  # each sequence alone, with what is its own
            yield change(case, batch=1, mask=of_sequences(mask, [b], None))
    for batch in down(case.batch, 1):
        yield change(case, batch=batch)


def _heads(case: Case) -> Iterator[Case | None]:
    group = case.heads_q // case.heads_kv
    yield change(case, heads_q=1, heads_kv=1)
    yield change(case, heads_q=group, heads_kv=1)
    yield change(case, heads_q=case.heads_kv)
    for factor in down(group, 1):
        yield change(case, heads_q=factor * case.heads_kv)
    for heads in down(case.heads_kv, 1):
        yield change(case, heads_q=heads * group, heads_kv=heads)


def _sequences(case: Case) -> Iterator[Case | None]:
    smaller = min(case.seq_q, case.seq_k)
    yield change(case, seq_q=min(smaller, 1), seq_k=min(smaller, 1))
    if case.seq_q != case.seq_k:
        yield change(case, seq_q=smaller, seq_k=smaller)
    for step in (case.seq_q - size for size in down(case.seq_q, 1)):
        yield change(case, seq_q=case.seq_q - step, seq_k=max(min(case.seq_k, 1), case.seq_k - step))
    for size in down(case.seq_q, 1):
        yield change(case, seq_q=size)
    for size in down(case.seq_k, 1):
        yield change(case, seq_k=size)


def _dims(case: Case) -> Iterator[Case | None]:
    for dim in _DIMS:
        if dim < max(case.dim_qk, case.dim_v):
            yield change(case, dim_qk=min(dim, case.dim_qk), dim_v=min(dim, case.dim_v))
    yield change(case, dim_qk=min(case.dim_qk, case.dim_v), dim_v=min(case.dim_qk, case.dim_v))
    if shares(case):
        for dim_qk, dim_v in _SHARED_DIMS:
            if dim_qk < case.dim_qk and dim_v <= case.dim_v:
                yield change(case, dim_qk=dim_qk, dim_v=dim_v)
    for dim in _DIMS:
        if dim < case.dim_qk:
            yield change(case, dim_qk=dim)
        if dim < case.dim_v:
            yield change(case, dim_v=dim)
    for eighths in down(-(-case.dim_qk // 8), 1):
        yield change(case, dim_qk=8 * eighths)
    for eighths in down(-(-case.dim_v // 8), 1):
        yield change(case, dim_v=8 * eighths)


def _values(case: Case) -> Iterator[Case | None]:
    values = case.values
    yield change(case, values=replace(values, edits=()))
    for dropped in values.edits:
        yield change(case, values=replace(values, edits=tuple(e for e in values.edits if e != dropped)))
    for regime in _simpler_regimes(values.regimes):
        yield change(case, values=replace(values, regime=regime))
    for seed in (0, 1, 2):
        if seed < values.seed:
            yield change(case, values=replace(values, seed=seed))


def _simpler_regimes(regimes: tuple[str, ...]) -> Iterator[str]:
    """One regime to the left of a single one, plain ones first; of several a plain one, each by itself, all but one, and a plain one for one."""
    ordered = (*_PLAIN_REGIMES, *(r for r in REGIMES if r not in _PLAIN_REGIMES))
    if len(regimes) == 1:
        yield from (r for r in ordered if REGIMES.index(r) < REGIMES.index(regimes[0]))
        return
    yield from (r for r in ordered if r in regimes or r in _PLAIN_REGIMES)
    for place, regime in enumerate(regimes):
        before, after = regimes[:place], regimes[place + 1 :]
        yield ",".join((*before, *after))
        yield from (",".join((*before, r, *after)) for r in _PLAIN_REGIMES if REGIMES.index(r) < REGIMES.index(regime))


_PASSES: tuple[Callable[[Case], Iterator[Case | None]], ...] = (
    heads_alone,
    _parts_off,
    packed,
    _batch,
    _heads,
    _sequences,
    _dims,
    _storage,
    _quantised,
    _grad,
    _values,
    patterns,
    numbers,
)
