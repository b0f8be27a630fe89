"""Cases related to one: other values, other sizes, the same parts; on them a hypothesis must hold as well."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import Mask, Packed
from flashverify.diagnosis.decoding_cases import decoded
from flashverify.diagnosis.grown import grown
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["grown", "peaked", "variants", "windows"]

_SIZES = ((0, 0), (5, 7), (140, 150), (18, 34), (33, 66), (2, 130))
"""Rows and keys that are added."""
_WIDE = 60
"""Keys that are added to a side of a window, so that a row sees several tiles."""
_WITH_PREFIXES, _BEFORE_THE_END = (14, 14), (9, 4, 12, 7)
"""Rows and keys that are added to sequences with prefixes, and how many keys before the last one these end."""
_STEEP = ((8.0, 24, 2), (256.0, 40, 1))
"""Times the usual scale, with rows and keys that are added, under which weights are near 0 and near 1, and an LSE is far from 0 on both sides."""


def variants(subject: Subject, case: Case) -> Iterator[Case]:
    """Different cases that the subject accepts, none of them `case`: the plain ones first."""
    seen = {case}
    for candidate in _candidates(case):
        if candidate is not None and candidate not in seen and subject.supports.refusal(candidate) is None:
            seen.add(candidate)
            yield candidate


def peaked(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases with few keys and a large scale that the subject accepts: a number in the code of a kernel lies between their values."""
    for number, (factor, rows, keys) in enumerate(_STEEP):
        few = grown(case, rows, keys, regime="normal", seed=case.values.seed + 61 + number)
        if few is not None:
            steep = replace(few, scale=factor * few.dim_qk**-0.5)
            if subject.supports.refusal(steep) is None:
                yield steep


def windows(case: Case) -> Iterator[Case]:
    """Larger cases with windows of other sides: both moved, one alone, one given that `case` lacks, and wide ones; none without a window."""
    if case.mask.window is None:
        return
    left, right = case.mask.window
    farther, later = (
        None if side is None else side + more for side, more in zip(case.mask.window, (3, 4), strict=True)
    )
    given = (farther if left is not None else (right or 0) + 7, later if right is not None else (left or 0) + 8)
    for number, window in enumerate(dict.fromkeys(((farther, later), (farther, None), (None, later), given))):
        moved = None if window == (None, None) else _with_window(case, window)
        found = None if moved is None else grown(moved, 18, 34, regime="normal", seed=129 + number)
        if found is not None:
            yield found
    most_left, most_right = (None if side is None else side + _WIDE for side in case.mask.window)
    wide = _with_window(case, (most_left, most_right))
    found = None if wide is None else grown(wide, 18, _WIDE + 90, regime="normal", seed=139)
    if found is not None:
        yield found


def _with_window(case: Case, window: tuple[int | None, int | None]) -> Case | None:
    """The case with another window; None where other parts of its mask do not go with that."""
    try:
        return replace(case, mask=replace(case.mask, window=window))
    except UsageError:
        return None


def _candidates(case: Case) -> Iterator[Case | None]:
    plain = (
        "zeros",
        "tiny",
        "subnormal",
        "q-zero",
        "v-constant",
        "integers",
        "ties",
        "duplicate-keys",
        "one-hot",
        "v-is-k",
    )
    regime = "normal" if case.values.regime in plain else case.values.regime
    group = case.heads_q // case.heads_kv
    heads: dict[str, Any] = {"heads_q": 2 * group, "heads_kv": 2} if case.heads_kv == 1 else {}
    for number, (rows, keys) in enumerate(_SIZES):
        if number == 1:
            yield from decoded(case)
            yield from _with_short_sequences(case)
            yield from _with_prefixes_in_another_order(case)
        yield grown(case, rows, keys, regime=regime, seed=case.values.seed + 8 * number + 8)
        if number == 0:  # a side of one size may stand for another side, or for a causal mask
            yield from windows(case)
        if number in (1, 4):
            yield grown(case, rows, keys, regime="normal", seed=number, **heads)
            yield grown(case, rows, keys, regime="normal", seed=11 + number, dim=32, heads_q=4, heads_kv=2, batch=2)
            yield grown(case, rows, keys, regime="normal", seed=31 + number, heads_q=6, heads_kv=2)
            if number == 1:
                yield from _with_larger_groups(case)
            yield grown(case, rows, keys, regime="ascending", seed=21 + number)
            yield grown(case, rows, keys, regime="logits-1e3", seed=41 + number)
    yield grown(case, 18, 34, regime="normal", seed=5, dtype="fp32", precision="ieee")
    for regime in ("logits-1e2", "logits-1e3", "negative", "logits-1e4"):
        yield grown(case, 40, 40, regime=regime, seed=6)
    if case.storage.page_size is not None:  # a last page that is almost full
        size = case.storage.page_size
        yield grown(case, 4, (-case.seq_k - 1) % size, regime="normal", seed=9)
        yield grown(case, 8, (-case.seq_k - 2) % size, regime="normal", seed=10)
    with_dlse = replace(case, grad=replace(case.grad, dlse=case.grad.backward and not case.grad.dlse))
    yield grown(with_dlse, 5, 7, regime="normal", seed=7)
    for seed in (91, 92):  # sizes that matter are those of the case itself
        yield grown(case, 0, 0, regime=regime, seed=seed)
        yield grown(case, 0, 0, regime="normal", seed=seed, dim=32, **heads)
    yield grown(case, 1, 1, regime=case.values.regime, seed=case.values.seed + 1)


def _with_larger_groups(case: Case) -> Iterator[Case | None]:
    """Cases with groups of four and of five heads: of three, the first one lost leaves the last two. None without groups."""
    group = case.heads_q // case.heads_kv
    rows, keys = _SIZES[1]
    for members in (4, 5) if group > 1 else ():
        yield grown(case, rows, keys, regime="normal", seed=51 + members, heads_q=members * case.heads_kv)


def _with_short_sequences(case: Case) -> Iterator[Case | None]:
    """Cases of several sequences among which those keep their lengths that are empty, or of one row or key; none without such ones."""
    mask = case.mask
    for seed, (rows, keys) in enumerate(((4, 6), (9, 21))):
        if mask.packed is not None and mask.parts() == {"packed"}:
            short = [size for size in mask.packed.lengths() if min(size) == 0][:2]
            sizes = [*short, *((q + rows, k + keys) for q, k in mask.packed.lengths()[:2])]
            cu_q, cu_k = ((0, *accumulate(size[n] for size in sizes)) for n in (0, 1))
            values = replace(case.values, regime="normal", seed=61 + seed, edits=())
            if short:
                yield _made(case, seq_q=cu_q[-1], seq_k=cu_k[-1], mask=Mask(packed=Packed(cu_q, cu_k)), values=values)
        for name, more in (("key_lengths", keys), ("query_lengths", rows)):
            given = getattr(mask, name)
            if given and min(given) < 2:
                wide = grown(case, rows, keys, regime="normal", seed=61 + seed, batch=3)
                lengths: Any = (min(given), given[0] + more, min(given))
                yield None if wide is None else _made(wide, mask=replace(wide.mask, **{name: lengths}))


def _with_prefixes_in_another_order(case: Case) -> Iterator[Case | None]:
    """A case of four sequences with prefixes of which neither the first nor the last one, nor the next one of all, is the longest or the shortest.

    None without several prefixes. Each ends among the last keys, so that a bottom-right diagonal does not show all of its keys.
    """
    if len(case.mask.prefix_lengths or ()) < 2:
        return
    wide = grown(case, *_WITH_PREFIXES, regime="normal", seed=67, batch=len(_BEFORE_THE_END))
    if wide is not None:
        packed = wide.mask.packed
        keys = [wide.seq_k] * wide.batch if packed is None else [size for _, size in packed.lengths()]
        lengths = tuple(max(size - _BEFORE_THE_END[n % len(_BEFORE_THE_END)], 0) for n, size in enumerate(keys))
        yield _made(wide, mask=replace(wide.mask, prefix_lengths=lengths))


def _made(case: Case, **changes: Any) -> Case | None:
    try:
        return replace(case, **changes)
    except UsageError:
        return None
