"""Cases that tell wrong semantics apart of which the related cases leave several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.case.masks.mask import Mask
from flashverify.case.shared_kv import shares
from flashverify.diagnosis.grown import grown
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["telling"]


def telling(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases that the subject accepts and that tell apart what `variants` cannot: whole tiles, three heads and sequences, large blocks, one part more in the mask."""
    whole = -case.seq_k % 128
    found = [*_empty_rows(case), *_pages(case), *_parts_of_k(case)]
    found += [grown(case, 5, whole + 128 * more, regime="normal", seed=51 + more) for more in (0, 1)]
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
        found.append(grown(case, case.seq_k + 5, 0, regime="normal", seed=87))  # more rows than keys
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
    accepted = (each for each in found if each is not None and subject.supports.refusal(each) is None)
    yield from sorted(accepted, key=work)  # many small ones take as long as a large one


def _empty_rows(case: Case) -> Iterator[Case | None]:
    """Rows whose keys have very negative logits, which may vanish as if there were none, and rows without keys that are no padding."""
    if case.mask.packed is None:
        yield grown(replace(case, mask=Mask()), 3, 9, regime="negative", seed=49)
    if case.mask.query_lengths is not None:
        yield change(case, mask=Mask(key_lengths=(0,) * case.batch))
        rows = grown(case, 18, 34, regime="normal", seed=83)
        if rows is not None and rows.mask.packed is None and rows.mask.tree is None:  # fewer keys than rows
            lengths = rows.mask.query_lengths or ()
            yield change(rows, mask=replace(rows.mask, key_lengths=tuple(max(n // 2, 1) for n in lengths)))


def _parts_of_k(case: Case) -> Iterator[Case | None]:
    """Cases whose K has fewer or more channels beyond V than V has, where V is a part of K: of two equal parts each is the other one's place."""
    if shares(case):
        for rest in {8, 16, 64} - {case.dim_v}:
            yield change(case, dim_qk=case.dim_v + rest)


def _pages(case: Case) -> Iterator[Case | None]:
    """Cases with pages, of the same size and of others: the last of them full, more than half full and less; none without pages.

    A last tile of keys is told from a last page by its size, and one that is lost by its number from one that is lost where it is not full.
    """
    size = case.storage.page_size
    if size is None:
        return
    for number, (each, last) in enumerate(
        ((size, size), (size, size - 3), (2 * size, size - 3), (size // 2, 5), (16, 5))
    ):
        keys = last + each * max(3, -((last - case.seq_k) // each))
        paged = change(case, storage=replace(case.storage, page_size=each))
        if paged is not None:
            yield grown(paged, 1, keys - case.seq_k, regime="normal", seed=151 + number)
