"""Lengths, heads and head dims that run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.probing.words import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.probing.answers import Seen
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["empty_sizes", "head_counts", "head_dims", "lengths"]

_MULTIPLES = (1, 8, 16, 32, 64, 128, 256)
_UNITS = ((1, 1), (3, 3), (5, 5))
_ROWS = (2, 4, 8, 16, 32, 64, 128)
_HEADS = ((1, 1), (3, 3), (8, 8), (32, 32))
_GROUPS = ((2, 1), (3, 1), (4, 2), (8, 2), (8, 1))
_DIMS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
_ODD_DIMS = (17, 20)
_TAILS = ((33, 33), (17, 50), (50, 17), (1, 1))


def _sized(rows: int, keys: int, base: Words) -> Words:
    words: Words = {"seq_q": rows, "seq_k": keys}
    if "packed" in base:
        words["packed"] = f"0,{rows}/0,{keys}"
    if "klen" in base:
        words["klen"] = keys
    return words


def _tried(notebook: Notebook, words: Words, what: str) -> Seen:
    """A case that is noted as suspicious where it runs and is wrong."""
    seen = notebook.seen(words)
    if seen.ran and notebook.verdict(seen) == "wrong":
        notebook.suspect(what, seen.failure, words)
    return seen


def lengths(notebook: Notebook) -> None:
    """Multiples, squares, and the most rows."""
    base = notebook.base
    one_row = int(str(base["seq_q"])) == 1
    units = [(1, unit) for _, unit in _UNITS] if one_row else _UNITS
    for step in _MULTIPLES:
        sizes = [(r if one_row else r * step, k * step) for r, k in units]
        if step == 1:
            sizes = [(1 if one_row else 33, 33), (1 if one_row else 65, 65), (1 if one_row else 7, 7)]
        if all(notebook.seen(_sized(*size, base)).ran for size in sizes):
            notebook.multiple = step
            break
    else:
        notebook.notes.append(f"no multiple up to {_MULTIPLES[-1]} that was tried runs at every length")
    if notebook.multiple > 1:
        notebook.infer("supports", "seq_multiple", notebook.multiple, "other lengths raise")
    unit = max(notebook.multiple, 16)
    if not one_row:
        wide, tall = (notebook.seen(_sized(r * unit, k * unit, base)).ran for r, k in ((1, 3), (3, 1)))
        notebook.square = not wide and not tall
        if notebook.square:
            notebook.infer("supports", "square", True, "other rows than keys raise")
        elif wide != tall:
            _one_way(notebook, wide=wide)
    _most_rows(notebook, unit)
    for rows, keys in _TAILS if notebook.multiple == 1 else ():
        if (notebook.square and rows != keys) or (notebook.most_rows is not None and rows > notebook.most_rows):
            continue
        _tails(notebook, _sized(rows, keys, base))
    notebook.settled("supports", "seq_multiple", "square", "max_seq_q")


def _one_way(notebook: Notebook, *, wide: bool) -> None:
    """Rows and keys of which one may be the larger number alone."""
    if wide:
        found = Refusal(
            code="case.seq_q > case.seq_k", reason="more rows than keys", refuses=lambda case: case.seq_q > case.seq_k
        )
    else:
        found = Refusal(
            code="case.seq_q < case.seq_k", reason="more keys than rows", refuses=lambda case: case.seq_q < case.seq_k
        )
    notebook.refusals.append(found)
    notebook.notes.append(f"{found.reason} raise")


def _tails(notebook: Notebook, words: Words) -> None:
    """A length that is no multiple of a tile; where it is wrong, the multiple that is right is named."""
    seen = notebook.seen(words)
    if not seen.ran:
        notebook.notes.append(f"{words['seq_q']} rows with {words['seq_k']} keys raise: {seen.raised or seen.unusable}")
        return
    if notebook.verdict(seen) != "wrong":
        return
    base = notebook.base
    right = [n for n in _MULTIPLES[1:] if notebook.verdict(notebook.seen(_sized(3 * n, 3 * n, base))) == "right"]
    declare = f"Supports(seq_multiple={right[0]})" if right else ""
    if words["seq_q"] != words["seq_k"] and notebook.verdict(notebook.seen(_sized(33, 33, base))) == "right":
        declare = "Supports(square=True)"
    notebook.suspect("lengths that are no multiple of a tile", seen.failure, words, declare=declare)


def _most_rows(notebook: Notebook, unit: int) -> None:
    """Where many rows raise and few run."""
    if notebook.square or notebook.multiple > 1:
        return
    keys = 4 * unit
    if notebook.seen(_sized(_ROWS[-1], max(keys, _ROWS[-1]), notebook.base)).ran:
        return
    most = 1
    for rows in _ROWS:
        if not notebook.seen(_sized(rows, max(keys, rows), notebook.base)).ran:
            break
        most = rows
    notebook.most_rows = most
    notebook.infer("supports", "max_seq_q", most, "more rows raise, as far as powers of two were tried")


def empty_sizes(notebook: Notebook) -> None:
    """Empty batches and sequences, which may kill the process."""
    if "packed" in notebook.base:
        return
    shapes: list[Words] = [_sized(int(str(notebook.base["seq_q"])), 0, notebook.base)]
    if notebook.most_rows is None:
        shapes.append(_sized(0, int(str(notebook.base["seq_k"])), notebook.base))
    if notebook.square:
        shapes = [_sized(0, 0, notebook.base)]
    shapes.append({"batch": 0})
    seen = [notebook.seen(words) for words in shapes]
    if all(each.ran for each in seen):
        notebook.infer("supports", "empty", True, "empty batches and sequences run")
    notebook.settled("supports", "empty")
    for each in seen:
        if each.raised.startswith("the process died"):
            notebook.notes.append(f"an empty batch or sequence: {each.raised}")
            break


def head_counts(notebook: Notebook) -> None:
    """Numbers of heads and sizes of groups, and several sequences."""
    counts = _ran(notebook, ({"heads_q": q, "heads_kv": kv} for q, kv in _HEADS), "the number of heads")
    if not all(counts):
        found = sorted(
            {q for (q, _), ran in zip(_HEADS, counts, strict=True) if ran} | {int(str(notebook.base["heads_q"]))}
        )
        notebook.infer("supports", "heads_q", tuple(found), "others of those tried raise")
    _groups(
        notebook,
        _ran(notebook, ({"heads_q": q, "heads_kv": kv} for q, kv in _GROUPS), "which kv head a query head reads"),
    )
    notebook.settled("supports", "heads_q", "group_sizes", "gqa")
    if "packed" not in notebook.base and "klen" not in notebook.base:
        seen = _tried(notebook, {"batch": 3}, "several sequences in a batch")
        if not seen.ran:
            notebook.notes.append(f"a batch of 3 does not run: {seen.raised or seen.unusable}")
            notebook.refusals.append(
                Refusal(code="case.batch != 1", reason="batch", refuses=lambda case: case.batch != 1)
            )


def _groups(notebook: Notebook, ran: list[bool]) -> None:
    """What the groups that ran, and those that did not, say of others."""
    right = {pair for pair, runs in zip(_GROUPS, ran, strict=True) if runs}
    wrong = set(_GROUPS) - right
    if not right and notebook.base["heads_q"] == notebook.base["heads_kv"]:
        notebook.infer("supports", "gqa", False, "groups of query heads raise")
    elif right and wrong and all(kv == 1 for _, kv in right) and all(kv > 1 for _, kv in wrong):
        notebook.notes.append("groups of query heads raise where there are several kv heads")
        notebook.refusals.append(
            Refusal(
                code="1 < case.heads_kv < case.heads_q",
                reason="groups with several kv heads",
                refuses=lambda case: 1 < case.heads_kv < case.heads_q,
            )
        )
    elif wrong:
        sizes = {q // kv for q, kv in right} - {q // kv for q, kv in wrong}
        sizes |= {int(str(notebook.base["heads_q"])) // int(str(notebook.base["heads_kv"]))}
        notebook.infer("supports", "group_sizes", tuple(sorted(sizes)), "others of those tried raise")


def _ran(notebook: Notebook, cases: Iterable[Words], what: str) -> list[bool]:
    return [_tried(notebook, words, what).ran for words in cases]


def head_dims(notebook: Notebook) -> None:
    """Head dims, their multiple and the largest one, and whether that of V may differ."""
    own = int(str(notebook.base["dim_qk"]))
    ran = {own}
    for dim in _DIMS:
        if dim != own and _tried(notebook, {"dim_qk": dim, "dim_v": dim}, "the head dim").ran:
            ran.add(dim)
    tried = set(_DIMS) | {own}
    if {8, 24, 40} <= ran:
        for dim in _ODD_DIMS:
            tried.add(dim)
            if _tried(notebook, {"dim_qk": dim, "dim_v": dim}, "the head dim").ran:
                ran.add(dim)
    _declare_dims(notebook, ran, tried)
    others = sorted(ran - {own}, key=lambda dim: abs(dim - own // 2))
    if others:
        words: Words = {"dim_v": others[0]}
        if not _tried(notebook, words, "another head dim of V than of Q and K").ran:
            notebook.infer("supports", "equal_dims", True, "another dim_v than dim_qk raises")
    notebook.settled("supports", "equal_dims")


def _declare_dims(notebook: Notebook, ran: set[int], tried: set[int]) -> None:
    """A multiple and a largest one where these say it; else the very list of those that run."""
    largest = max(ran)
    multiples = (n for n in (1, 4, 8, 16, 32, 64, 128) if n > 1 or 17 in tried)
    step = next((n for n in multiples if all(dim in ran for dim in tried if dim % n == 0 and dim <= largest)), largest)
    left = any(dim % step for dim in ran)
    if left:
        step = math.gcd(*ran)
        notebook.refusals.append(
            Refusal(
                code=f"not {{case.dim_qk, case.dim_v}} <= {{{', '.join(map(str, sorted(ran)))}}}",
                reason="head dim",
                refuses=lambda case: not {case.dim_qk, case.dim_v} <= ran,
            )
        )
    notebook.infer("supports", "dim_multiple", step, f"ran: {', '.join(map(str, sorted(ran)))}")
    beyond = "no larger one was tried" if largest == max(tried) else "larger ones raise"
    notebook.infer("supports", "dim_max", largest, beyond)
