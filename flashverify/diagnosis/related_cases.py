"""Cases related to one: other values, other sizes, the same parts; on them a hypothesis must hold as well."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import Mask, Packed, drawn_anew
from flashverify.diagnosis.decoding_cases import decoded
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["grown", "peaked", "telling", "variants", "windows"]

_SIZES = ((0, 0), (5, 7), (140, 150), (18, 34), (33, 66), (2, 130))
"""Rows and keys that are added."""
_WIDE = 60
"""Keys that are added to a side of a window, so that a row sees several tiles."""
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


def telling(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases that the subject accepts and that tell apart what `variants` cannot: whole tiles, three heads and sequences, large blocks, one part more in the mask."""
    whole = -case.seq_k % 128
    found = [grown(case, 5, whole + 128 * more, regime="normal", seed=51 + more) for more in (0, 1)]
    if len(case.mask.given()) > 1 and case.mask.packed is None:  # parts that hide the same keys
        found.append(grown(replace(case, mask=Mask()), 5, 40, regime="normal", seed=57))
    if case.batch * case.heads_q > 1:  # of two each one is the next one and the one before
        found.append(grown(case, 5, 7, regime="normal", seed=59, heads_q=6, heads_kv=3, batch=3))
    blocks = case.mask.blocks
    if blocks is not None:
        large = replace(case, mask=replace(case.mask, blocks=replace(blocks, keys=256)))
        found += [grown(large, 3, 425 - case.seq_k % 16 + n, regime="normal", seed=60 + n) for n in (0, 16)]
    if case.mask.causal is None and case.mask.tree is None and case.mask.window_alignment is None:
        causal = replace(case, mask=replace(case.mask, causal="top-left"))
        found += [grown(causal, rows, keys, regime="normal", seed=71) for rows, keys in ((18, 34), (140, 150))]
        dense = (
            causal.mask
            if case.mask.bitmap is None
            else replace(causal.mask, bitmap=replace(case.mask.bitmap, live=220))
        )
        aligned = replace(case, mask=replace(dense, causal="bottom-right"))  # no row without keys
        found += [grown(aligned, rows, rows + 40, regime="normal", seed=75 + rows) for rows in (18, 70)]
    if case.mask.key_lengths is None and case.mask.packed is None and case.mask.tree is None:
        short = replace(case, mask=replace(case.mask, key_lengths=(case.seq_k,) * case.batch))
        found.append(grown(replace(short, seq_k=case.seq_k + 3), 18, 34, regime="normal", seed=81))
    for name, value in case.launch:  # fewer splits, each of several tiles: most wrong splits lose only a part there
        for fewer in (2, 3) if value > 3 else ():
            launch = tuple((other, fewer if other == name else x) for other, x in case.launch)
            found.append(grown(case, 5, 290 + 64 * fewer, regime="normal", seed=93 + fewer, launch=launch))
    if case.mask.packed is None:  # whole tiles of which no key is hidden, far from 0
        found += [
            grown(replace(case, mask=Mask()), 5, whole + 128 * more, regime="negative", seed=111 + more)
            for more in (0, 1)
        ]
    # of a subject with few rows no larger case above has large or very negative logits
    found += [
        grown(case, 0, keys, regime=regime, seed=85 + keys) for keys, regime in ((9, "negative"), (40, "logits-1e4"))
    ]
    yield from (each for each in found if each is not None and subject.supports.refusal(each) is None)


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
        moved = replace(case, mask=replace(case.mask, window=window))
        found = None if window == (None, None) else grown(moved, 18, 34, regime="normal", seed=129 + number)
        if found is not None:
            yield found
    most_left, most_right = (None if side is None else side + _WIDE for side in case.mask.window)
    found = grown(
        replace(case, mask=replace(case.mask, window=(most_left, most_right))),
        18,
        _WIDE + 90,
        regime="normal",
        seed=139,
    )
    if found is not None:
        yield found


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


def _made(case: Case, **changes: Any) -> Case | None:
    try:
        return replace(case, **changes)
    except UsageError:
        return None


def grown(case: Case, rows: int, keys: int, *, regime: str, seed: int, dim: int = 0, **axes: Any) -> Case | None:
    """`case` with more rows and keys in every sequence, other values, and some axes replaced; None where there is no such case.

    Of packed sequences there are as many as `batch` says, at least.
    """
    batch = axes.get("batch", case.batch)
    mask = case.mask
    try:
        if mask.packed is not None:
            axes["batch"] = 1
            mask, seq_q, seq_k = _packed(case, mask.packed, rows, keys, batch)
        else:
            seq_q, seq_k = case.seq_q + rows, case.seq_k + keys
            if mask.tree is not None:
                seq_k = max(seq_k, case.seq_k + rows)
            mask = _grown(mask, (rows, keys), [(rows, keys)] * batch)
        if rows or keys:
            mask = _patterns(mask, seed)
        if dim:
            axes |= {"dim_qk": dim, "dim_v": dim}
        if rows or keys:
            axes["grad"] = replace(case.grad, do="dense")
        values = replace(case.values, regime=regime, seed=seed, edits=())
        return replace(case, **{"seq_q": seq_q, "seq_k": seq_k, "mask": mask, "values": values, **axes})
    except UsageError:
        return None


def _grown(mask: Mask, shared: tuple[int, int], more: list[tuple[int, int]], packed: Packed | None = None) -> Mask:
    """What the mask says of each sequence, grown by as many rows and keys; new sequences are like the first one.

    Args:
        mask: with sequences to grow.
        shared: rows and keys that what all sequences share grows by.
        more: rows and keys, a pair per sequence that there is to be.
        packed: where the grown sequences lie, None where they are not packed.
    """
    changed: dict[str, Any] = {}
    for part, value in mask.given():
        pieces = part.per_sequence(value, mask)
        if pieces is None:
            changed[part.name] = part.grow(value, *shared)
        elif pieces:
            grown = [part.grow(piece, *by) for piece, by in zip(pieces, more, strict=False)]
            grown += [part.another(grown[0], n) for n in range(1, len(more) - len(grown) + 1)]
            changed[part.name] = part.join(grown, packed=packed is not None)
    return replace(mask, **(changed | {"packed": packed}))


def _patterns(mask: Mask, seed: int) -> Mask:
    """Patterns drawn anew, sometimes with blocks of several tiles."""
    mask = drawn_anew(mask, seed)
    if mask.blocks is not None and seed % 2:
        mask = replace(mask, blocks=replace(mask.blocks, rows=2 * mask.blocks.rows, keys=2 * mask.blocks.keys))
    return mask


def _packed(case: Case, packed: Packed, rows: int, keys: int, least: int) -> tuple[Mask, int, int]:
    given = packed.lengths()
    given = (*given, *given[:1] * (least - len(given)))
    more = [(rows * (n % 2 == 0 or n >= len(packed.lengths())), keys) for n in range(len(given))]
    lengths = [(q + r, k + c) for (q, k), (r, c) in zip(given, more, strict=True)]
    if case.mask.tree is not None:
        lengths = [(q, max(k, q)) for q, k in lengths]
    cu_q, cu_k = [0], [0]
    for q, k in lengths:
        cu_q.append(cu_q[-1] + q)
        cu_k.append(cu_k[-1] + k)
    seq_q = case.seq_q - packed.cu_q[-1] + cu_q[-1]
    seq_k = case.seq_k - packed.cu_k[-1] + cu_k[-1]
    return _grown(case.mask, (rows, keys), more, Packed(tuple(cu_q), tuple(cu_k))), seq_q, seq_k
