"""Calls that may come before a call, each of which differs from it in one thing: an argument, a part, a size, a launch parameter."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.changes import change
from flashverify.checks.reuse.neighbours import dtypes_of, settings_of, strides_of
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.state.pairs import lengths_of, other_launches, without
from flashverify.diagnosis.trials import work
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["OTHER_VALUES", "primers"]

OTHER_VALUES, _DLSE = "other values", "a gradient through the LSE"
_WORDS = {"alibi": "ALiBi", "sink": "sinks"}
_CAPS = (2.5, 1.5, 0.75, 3.5)
_SHARES = (0.25, 0.5, 0.125, 0.375)
"""Values of settings that are added, another one each turn."""


def primers(subject: Subject, case: Case, turn: int) -> Iterator[tuple[str, Case]]:
    """What each of them differs in, in words, and the case; those that the subject accepts.

    Their values are others too, but for those with other launch parameters: an output of the one is then no output of the other.

    Args:
        subject: the kernel under test.
        case: of the call that comes after them.
        turn: another one gives what is added other values.
    """
    seen = {case}
    for what, other in _all(subject, case, turn):
        if other is None or other in seen or work(other) > LARGEST or subject.supports.refusal(other) is not None:
            continue
        seen.add(other)
        yield what, other


def _all(subject: Subject, case: Case, turn: int) -> Iterator[tuple[str, Case | None]]:
    launched = other_launches(subject, case)
    case = dataclasses.replace(case, values=dataclasses.replace(case.values, seed=case.values.seed + 1 + turn))
    yield OTHER_VALUES, case
    yield from launched
    if case.mask.causal is None:  # another one each turn: what is kept may be the last one
        kind: Any = ("bottom-right", "top-left")[turn % 2]
        yield "a causal mask", _masked(case, causal=kind)
    yield from lengths_of(case)
    yield from settings_of(case)
    for what, other in without(case):
        yield (_DLSE if other.grad.dlse and not case.grad.dlse else what), other
    yield from _with_one_more(case, turn)
    yield from _sizes(case)
    yield from strides_of(case)
    yield from dtypes_of(case)


def _with_one_more(case: Case, turn: int) -> Iterator[tuple[str, Case | None]]:
    """The case with a part that it lacks."""
    logits: dict[str, Any] = {"softcap": _CAPS[turn % len(_CAPS)], "alibi": True, "bias": "full", "sink": True}
    for name, value in logits.items():
        if not getattr(case.logits, name):
            yield _WORDS.get(name, f"a {name}"), change(case, logits=dataclasses.replace(case.logits, **{name: value}))
    if not case.dropout:
        yield "dropout", change(case, dropout=_SHARES[turn % len(_SHARES)])
    masks: dict[str, Any] = {
        "window": (2 + turn % 3, None if case.mask.prefix_lengths else 1),
        "key_lengths": tuple(max(case.seq_k // 2 - n % 2, 0) for n in range(case.batch)),
        "query_lengths": tuple(max(case.seq_q // 2 - n % 2, 0) for n in range(case.batch)),
    }
    for name, value in masks.items():
        if getattr(case.mask, name) is None and case.mask.packed is None and case.mask.tree is None:
            yield name.replace("_", " "), _masked(case, **{name: value})


def _masked(case: Case, **parts: Any) -> Case | None:
    """The case with other parts of its mask; None where they contradict those that it has."""
    try:
        mask = dataclasses.replace(case.mask, **parts)
    except UsageError:
        return None
    return change(case, mask=mask)


def _sizes(case: Case) -> Iterator[tuple[str, Case | None]]:
    yield "fewer keys", change(case, seq_k=max(case.seq_k // 2, 1)) if case.seq_k > 1 else None
    yield "more keys", change(case, seq_k=2 * case.seq_k + 1)
    yield "fewer rows", change(case, seq_q=max(case.seq_q // 2, 1)) if case.seq_q > 1 else None
    yield "more rows", change(case, seq_q=2 * case.seq_q + 1)
    yield "fewer sequences", change(case, batch=case.batch - 1) if case.batch > 1 else None
    yield "other heads", change(case, heads_q=2 * case.heads_q, heads_kv=2 * case.heads_kv)
    yield "other channels", change(case, dim_qk=case.dim_qk + 8, dim_v=case.dim_v + 8)
