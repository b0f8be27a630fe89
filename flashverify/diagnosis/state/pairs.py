"""Pairs of problems of equal shapes that differ in their values and in one thing more: which are called one after the other."""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from flashverify.case.changes import change
from flashverify.case.masks.mask import LENGTHS, drawn_anew
from flashverify.checks.passes.derived_problems import launches
from flashverify.checks.reuse.neighbours import dtypes_of, settings_of, strides_of
from flashverify.checks.reuse.problems import larger
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.trials import work
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["KINDS", "Pair", "fresh_number", "kinds_of", "lengths_of", "other_launches", "pairs", "without"]

KINDS = ("values", "lengths", "settings", "launch", "sizes", "storage", "larger")
_TURNED = ("larger", "launch", "sizes")
"""Kinds of which the changed problem is called first."""
_SIZES = (
    (5, 3, 5),
    (3, 5, 0),
    (2, 9, 6),
    (12, 9, 0),
    (9, 14, 7),
    (21, 30, 0),
    (4, 4, 8),
    (38, 27, 0),
    (66, 71, 0),
    (0, 0, 0),
)
"""Rows and keys that are added to a case, for shapes that the subject was not asked before, and sequences, for a key that has the batch
alone; 0 is as many as the case has."""
_MORE = 23
"""Rows and keys that are added besides, fewer than these, by the number of the diagnosis."""
_BATCHES = 28
"""Sequences that are added so, likewise."""
_WIDE = ((3, 4), (1, 9), (6, 2), (2, 13), (4, 7), (8, 5), (0, 11), (5, 0))
"""Rows and keys that are added to cases whose heads and channels are new too."""
_HEADS, _KV_HEADS = 5, 19
"""Fewest kv heads of these, and how many numbers of them there are."""
_CHANNELS = tuple(range(8, 257, 8))
_LAUNCHES = 400
"""Launch parameters among which others are looked for."""
_NO_DLSE = "no gradient through the LSE"
_TERMS: tuple[tuple[str, str, Any], ...] = (
    ("softcap", "softcap", None),
    ("bias", "bias", None),
    ("alibi", "ALiBi", False),
    ("sink", "sinks", False),
)
"""Terms of the logits, which the later call may lack: their names, their words and what stands where there is none."""
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two cases.

    Attributes:
        what: the later one differs in from the earlier one, beside its values, in words.
        earlier: called first.
        later: called second.
        turned: whether the one that was changed is called first.
    """

    what: str
    earlier: Case
    later: Case
    turned: bool = False


def fresh_number() -> int:
    """Of a diagnosis, another one each time: what a subject was asked for an earlier diagnosis is not fresh."""
    return next(_NUMBERS)


def kinds_of(error: str) -> tuple[str, ...]:
    """What pairs may differ in, that of a failure of `reuse` with this class of error first."""
    if error in ("stream", "together", "forward-between", "another-do"):
        return ()
    if error == "graph":  # whose replay has the settings of its capture
        return ("values", "lengths")
    if error in ("backward", "saved-state"):
        return ("backward",)
    return (error, *(kind for kind in KINDS if kind != error)) if error in KINDS else KINDS


def pairs(subject: Subject, case: Case, kind: str, number: int, *, wide: bool = False) -> Iterator[Pair]:
    """Pairs of cases like `case`, of several sizes and seeds, that the subject accepts, each thing in turn.

    Args:
        subject: the kernel under test.
        case: whose parts and axes they have.
        kind: one of those of `kinds_of`.
        number: a `fresh_number`; pairs of one number have the same sizes.
        wide: heads and channels are new too, and each pair has its own.
    """
    bases = _wide(subject, case, number) if wide else _bases(subject, case, number)
    if kind == "larger":  # a buffer that grew keeps its size
        bases = iter(sorted(bases, key=work))
    for turn, start in enumerate(bases):
        if kind == "backward":
            yield Pair("the same problem", start, start)
            continue
        for what, changed in _others(subject, start, kind):
            other = _with(changed, values=dataclasses.replace(changed.values, seed=changed.values.seed + 1, edits=()))
            same = kind != "values" and dataclasses.replace(changed, values=start.values) == start
            if other is None or same or subject.supports.refusal(other) is not None:
                continue
            turned = kind in _TURNED or (
                not start.grad.dlse if what == _NO_DLSE else turn % 2 == 1 and kind == "lengths"
            )
            yield Pair(what, other, start, turned) if turned else Pair(what, start, other)


def _bases(subject: Subject, case: Case, number: int) -> Iterator[Case]:
    """Larger cases with normal values and no padding but zeros; last the size of the case itself."""
    plain = dataclasses.replace(case, storage=dataclasses.replace(case.storage, padding="zero"))
    shift = (zlib.crc32(str(case).encode()) + 7 * number) % _MORE
    seen: set[Case] = set()
    for turn, (rows, keys, batch) in enumerate(_SIZES):
        more = shift if rows else 0
        axes = {"batch": batch + 4 * number % _BATCHES} if batch and case.mask.packed is None else {}
        for by in ((rows + more, keys + more), (0, keys + more)):
            found = grown(plain, *by, regime="normal", seed=2 * turn + 100, **axes)
            if found is None or found in seen or work(found) > LARGEST or subject.supports.refusal(found) is not None:
                continue
            seen.add(found)
            yield found
            break


def _wide(subject: Subject, case: Case, number: int) -> Iterator[Case]:
    """Cases with other heads and channels than any other base of any number has, as far as there are enough of them."""
    plain = dataclasses.replace(case, storage=dataclasses.replace(case.storage, padding="zero"))
    group, start = case.heads_q // case.heads_kv, zlib.crc32(str(case).encode())
    for turn, (rows, keys) in enumerate(_WIDE):
        heads = _HEADS + (start + len(_WIDE) * number + turn) % _KV_HEADS
        axes = {"heads_q": group * heads, "heads_kv": heads}
        dims = [_CHANNELS[(start + 3 * (len(_WIDE) * number + turn) + step) % len(_CHANNELS)] for step in (0, 5, 11, 0)]
        for dim in (*(dim for dim in dims if dim not in (case.dim_qk, case.dim_v)), 0):
            found = grown(plain, rows, keys, regime="normal", seed=3 * turn + 200, dim=dim, **axes)
            if found is not None and work(found) <= LARGEST and subject.supports.refusal(found) is None:
                yield found
                break


def _others(subject: Subject, case: Case, kind: str) -> Iterator[tuple[str, Case]]:
    if kind == "values":
        yield "other values", case
    elif kind == "lengths":
        yield from lengths_of(case)
    elif kind == "settings":
        yield from settings_of(case)
        yield from _drawn(case)
        yield from without(case)
    elif kind == "launch":
        yield from other_launches(subject, case)
    elif kind == "sizes":
        yield from _other_sizes(case)
    elif kind == "storage":
        yield from strides_of(case)
        yield from dtypes_of(case)
    elif kind == "larger" and (found := larger(subject, case)) is not None and work(found) <= LARGEST:
        yield "a larger problem", found


def other_launches(subject: Subject, case: Case) -> Iterator[tuple[str, Case]]:
    """For each launch parameter the nearest smaller value and the nearest larger one, all others as they are."""
    own = dict(case.launch)
    nearest: dict[str, tuple[int, tuple[tuple[str, int], ...]]] = {}
    for launch in islice(launches(subject, case) if own else (), _LAUNCHES):
        changed = [(name, value) for name, value in launch if own.get(name) != value]
        if len(changed) != 1 or len(launch) != len(own) or changed[0][0] not in own:
            continue
        (name, value), before = changed[0], own[changed[0][0]]
        what = f"a {'smaller' if value < before else 'larger'} {name}"
        if what not in nearest or abs(value - before) < nearest[what][0]:
            nearest[what] = abs(value - before), launch
    for what, (_, launch) in nearest.items():
        yield what, dataclasses.replace(case, launch=launch)


def _other_sizes(case: Case) -> Iterator[tuple[str, Case]]:
    """Half the keys, and half the rows."""
    for what, name in (("fewer keys", "seq_k"), ("fewer rows", "seq_q")):
        size = getattr(case, name)
        if size > 1 and (found := change(case, **{name: size // 2})) is not None:
            yield what, found


def without(case: Case) -> Iterator[tuple[str, Case]]:
    """The case without a gradient through the LSE, or with one where it has none; without each term of the logits that it has."""
    if case.grad.backward:
        yield _NO_DLSE, dataclasses.replace(case, grad=dataclasses.replace(case.grad, dlse=not case.grad.dlse))
    for name, words, nothing in _TERMS:
        if getattr(case.logits, name) != nothing:
            yield f"no {words}", dataclasses.replace(case, logits=dataclasses.replace(case.logits, **{name: nothing}))


def lengths_of(case: Case) -> Iterator[tuple[str, Case]]:
    """About half of each declared length, or the whole room, and prefixes of other lengths."""
    for names in (LENGTHS, ("prefix_lengths",)):
        changed: dict[str, Any] = {
            name: tuple(min(length // 2 + number, _room(case, name)) for number, length in enumerate(lengths))
            for name in names
            if (lengths := getattr(case.mask, name)) is not None and any(lengths)
        }
        if changed and (found := _with(case, mask=changed)) is not None:
            yield "other lengths", found


def _room(case: Case, name: str) -> int:
    return case.seq_q if name == "query_lengths" else case.seq_k


def _drawn(case: Case) -> Iterator[tuple[str, Case]]:
    """Other patterns and trees."""
    mask = drawn_anew(case.mask, case.values.seed ^ 5)
    if mask != case.mask:
        yield "another pattern of the mask", dataclasses.replace(case, mask=mask)
    tree = case.mask.tree
    if tree is not None and case.mask.packed is None and not (tree and isinstance(tree[0], tuple)):
        chain = tuple(range(-1, len(tree) - 1))
        star = (-1,) + (0,) * (len(tree) - 1)
        if (found := _with(case, mask={"tree": star if tree == chain else chain})) is not None:
            yield "another tree", found


def _with(case: Case, **changes: Any) -> Case | None:
    """The case with changes, those of its mask by name; None where there is no such case."""
    try:
        if isinstance(changes.get("mask"), dict):
            changes["mask"] = dataclasses.replace(case.mask, **changes["mask"])
        return dataclasses.replace(case, **changes)
    except UsageError:
        return None
