"""Cases that differ from one in a single respect: on them shows what a defect depends on."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Grad, Storage
from flashverify.case.changes import change
from flashverify.case.masks.mask import Bitmap, Blocks, Mask, Selection, without_part
from flashverify.case.modifiers.logits import MODIFIERS
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.trials import work
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports

__all__ = ["neighbours", "resized", "simplifications"]

_SIZES = (
    64, 128, 1, 16, 65, 17, 32, 3, 33, 100, 129, 8, 2, 127,
    63, 15, 5, 31, 40, 24, 47, 48, 80, 96, 160, 192, 200, 255, 256, 257,
)  # fmt: skip
_DIMS = (16, 64, 128, 32, 8, 256, 96, 48, 80, 24, 40, 160, 192)
_HEADS = ((1, 1), (4, 2), (2, 1), (2, 2), (4, 1), (3, 3), (4, 4), (6, 2), (8, 2))
_REGIMES = ("normal", "logits-1e2", "negative", "ascending", "logits-1e3", "ties", "tiny", "descending")
_SCALES = (4.0, 0.25, 16.0, 2.0, 0.5, 8.0, 64.0, 1.4, 0.7, 3.0, 6.0, 0.125, 32.0, 0.06, 0.03, 0.015)


def neighbours(supports: Supports, case: Case) -> Iterator[Case]:
    """Cases that `supports` accepts, each other than `case` in one respect, all respects in turn; no case twice."""
    seen = {case}
    for candidate in chain.from_iterable(zip_longest(*(part(supports, case) for part in _RESPECTS))):
        if candidate is None or candidate in seen or work(candidate) > LARGEST:
            continue
        seen.add(candidate)
        if supports.refusal(candidate) is None:
            yield candidate


def simplifications(supports: Supports, case: Case) -> Iterator[Case]:
    """Cases that `supports` accepts, each without one of the things that `case` has."""
    plain, small = Grad(backward=case.grad.backward), max(8, supports.dim_multiple)
    found: list[Case | None] = [change(case, mask=without_part(case.mask, part.name)) for part, _ in case.mask.given()]
    found += [change(case, **m.setting(case, m.absent)) for m in MODIFIERS if m.of(case)]
    found += [change(case, launch=tuple(pair for pair in case.launch if pair != dropped)) for dropped in case.launch]
    found += [
        change(case, batch=1),
        change(case, heads_q=case.heads_kv),
        change(case, heads_q=1, heads_kv=1),
        change(case, dtype="fp32", precision="ieee"),
        change(case, scale=None),
        change(case, grad=plain),
        change(case, grad=replace(case.grad, dlse=False)),
        change(case, storage=Storage(page_size=case.storage.page_size, kept_pages=case.storage.kept_pages)),
        change(case, storage=replace(case.storage, page_size=None)),
        change(case, values=replace(case.values, edits=())),
        change(case, values=replace(case.values, regime="normal", edits=())),
    ]
    found += [change(case, dim_qk=small, dim_v=small), change(case, dim_v=case.dim_qk)]
    found += [resized(case, 3, case.seq_k), resized(case, case.seq_q, 3), resized(case, 3, 3), resized(case, 20, 20)]
    found += [resized(case, case.seq_q // 2, case.seq_k // 2), resized(case, case.seq_q // 2, case.seq_k)]
    yield from dict.fromkeys(
        each for each in found if each is not None and each != case and supports.refusal(each) is None
    )


def resized(case: Case, seq_q: int, seq_k: int) -> Case | None:
    """`case` with buffers of so many rows and keys; sequences grow with them, or are cut."""
    more = (max(seq_q - case.seq_q, 0), max(seq_k - case.seq_k, 0))
    if case.mask.packed is not None and any(more):
        return grown(case, *more, regime=case.values.regime, seed=case.values.seed)
    if any(more):
        larger = grown(case, *more, regime=case.values.regime, seed=case.values.seed)
        return None if larger is None else change(larger, seq_q=seq_q, seq_k=seq_k)
    return change(case, seq_q=seq_q, seq_k=seq_k)


def _values(supports: Supports, case: Case) -> Iterator[Case | None]:
    for seed in (case.values.seed + 101, case.values.seed + 102):
        yield change(case, values=replace(case.values, seed=seed, edits=()))
    for regime in _REGIMES:
        yield change(case, values=replace(case.values, regime=regime, edits=()))
    if "positive" in supports.scales:
        for factor in _SCALES:
            yield change(case, scale=factor * abs(case.softmax_scale))
        yield change(case, scale=None)


def _sizes(_supports: Supports, case: Case) -> Iterator[Case | None]:
    for size in _SIZES:
        yield resized(case, size, case.seq_k)
        yield resized(case, case.seq_q, size)
        yield resized(case, size, size)


def _dims(_supports: Supports, case: Case) -> Iterator[Case | None]:
    for dim in _DIMS:
        yield change(case, dim_qk=dim, dim_v=dim)
    for dim in _DIMS:
        yield change(case, dim_qk=dim)
        yield change(case, dim_v=dim)


def _heads(_supports: Supports, case: Case) -> Iterator[Case | None]:
    for heads_q, heads_kv in _HEADS:
        yield change(case, heads_q=heads_q, heads_kv=heads_kv)
    if case.mask.packed is None:
        for batch in (1, 2, 3):
            if batch < case.batch:
                yield change(case, batch=batch)
            elif batch > case.batch:
                yield grown(case, 0, 0, regime=case.values.regime, seed=case.values.seed, batch=batch)


def _grad(_supports: Supports, case: Case) -> Iterator[Case | None]:
    yield change(case, grad=replace(case.grad, dlse=not case.grad.dlse))
    yield change(case, grad=Grad(backward=not case.grad.backward))
    if case.grad.backward:
        for do in ("dense", "expanded", "transposed"):
            yield change(case, grad=replace(case.grad, do=do))


def _parts(supports: Supports, case: Case) -> Iterator[Case | None]:
    mask = case.mask
    for part, _ in mask.given():
        yield change(case, mask=without_part(mask, part.name))
    rows, keys = case.seq_q, case.seq_k
    added: dict[str, tuple[Any, ...]] = {
        "causal": ("top-left", "bottom-right"),
        "window": ((3, None), (None, 2), *_wider(mask.window)),
        "key_lengths": ((max(keys - 1, 0),) * case.batch, (keys,) * case.batch),
        "query_lengths": ((max(rows - 1, 0),) * case.batch,),
        "bitmap": (Bitmap(live=200, seed=3),),
        "blocks": (Blocks(rows=16, keys=16, live=200, seed=3),),
        "selection": (Selection(4, 1, 1, 200, 3),),
    }
    for name, values in added.items():
        for value in values if name in supports.masks else ():
            if getattr(mask, name) != value:
                yield _with_part(case, name, value)


def _wider(window: tuple[int | None, int | None] | None) -> Iterator[tuple[int | None, int | None]]:
    """The window with one side one key wider: a limit of a side lies next to the side that fails."""
    left, right = window or (None, None)
    if left is not None:
        yield left + 1, right
    if right is not None:
        yield left, right + 1


def _with_part(case: Case, name: str, value: Any) -> Case | None:
    try:
        return change(case, mask=Mask(**{part.name: v for part, v in case.mask.given()} | {name: value}))
    except (UsageError, TypeError):
        return None


def _modifiers(supports: Supports, case: Case) -> Iterator[Case | None]:
    plain: dict[str, Any] = {"softcap": 2.0, "alibi": "yes", "bias": "full", "sink": "yes", "dropout": 0.25}
    for modifier in MODIFIERS:
        has = bool(modifier.of(case))
        accepted = supports.dropout if modifier.name == "dropout" else modifier.name in supports.logits
        if has:
            yield change(case, **modifier.setting(case, modifier.absent))
        elif accepted and modifier.name in plain:
            try:
                yield change(case, **modifier.setting(case, modifier.parse(str(plain[modifier.name]))))
            except (UsageError, ValueError):
                continue


def _dtypes(supports: Supports, case: Case) -> Iterator[Case | None]:
    for dtype in supports.dtypes:
        for precision in supports.precisions if dtype == "fp32" else ("ieee",):
            yield change(case, dtype=dtype, precision=precision)


def _launch(supports: Supports, case: Case) -> Iterator[Case | None]:
    if case.launch:
        yield change(case, launch=())
    for n in range(6 if supports.launch else 0):  # all parameters at once: a subject may ask for all or none
        yield change(case, launch=tuple(sorted((name, values[n % len(values)]) for name, values in supports.launch)))
    for name, values in supports.launch:
        for value in values:
            yield change(case, launch=tuple(sorted((dict(case.launch) | {name: value}).items())))


def _storage(supports: Supports, case: Case) -> Iterator[Case | None]:
    storage = case.storage
    kept = Storage(page_size=storage.page_size, kept_pages=storage.kept_pages, kv=storage.kv)
    yield change(case, storage=kept)
    turns = (not storage.transposed,) if storage.page_size is None else ()  # pages have contiguous channels
    pages = () if storage.transposed else (*supports.page_sizes, None)
    others: tuple[dict[str, Any], ...] = (
        {"layout": "bshd" if storage.layout == "bhsd" else "bhsd"},
        {"gap": 8},
        {"gap": 1},
        {"offset": 8},
        {"offset": 1},
        {"expand": not storage.expand},
        {"strided": not storage.strided},
        *({"transposed": turned} for turned in turns),
        {"padding": "dirt"},
        *({"page_size": size} for size in pages),
    )
    for changed in others:
        yield change(case, storage=replace(storage, **changed))


_RESPECTS = (_parts, _sizes, _dims, _heads, _dtypes, _modifiers, _grad, _launch, _storage, _values)
