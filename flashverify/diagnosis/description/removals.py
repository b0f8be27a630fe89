"""Things that failing cases have, such as a modifier, without any one of which they are right."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from flashverify.case.case import Grad, Storage
from flashverify.case.changes import change
from flashverify.case.masks.mask import without_part
from flashverify.case.modifiers.logits import MODIFIERS
from flashverify.diagnosis.condition_words import part_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.trials import Trials

__all__ = ["needed"]

_TRIED, _FEWEST = 3, 2
"""Failing cases with a thing that are run without it, and how many of them there must be."""
_SHARE = 0.97
"""Of the time, after which nothing is taken away."""


def needed(trials: Trials, case: Case) -> tuple[str, ...]:
    """Those things, in words, of the failing `case`; each was taken away from two failing cases at least, all of which were right then.

    Args:
        trials: runs of the subject, `case` and other failing cases among them.
        case: a failing case.
    """
    failing = [scene.case for scene in trials.scenes.values() if scene.failures and scene.case != case]
    return tuple(words for words, _ in _removals(case) if _right_without(trials, words, (case, *failing)))


def _right_without(trials: Trials, words: str, failing: tuple[Case, ...]) -> bool:
    tried = 0
    for case in failing:
        without = dict(_removals(case)).get(words)
        if without is None or trials.subject.supports.refusal(without) is not None:
            continue
        scene = trials.scene(without) if trials.known(without) or trials.left(_SHARE) else None
        if scene is None or scene.failures:
            return False
        tried += 1
        if tried == _TRIED:
            return True
    return tried >= _FEWEST


def _removals(case: Case) -> Iterator[tuple[str, Case]]:
    """Each thing that the case has, and the case without it."""
    found: list[tuple[str, Case | None]] = [
        (part_words(part.name), change(case, mask=without_part(case.mask, part.name))) for part, _ in case.mask.given()
    ]
    found += [(part_words(m.name), change(case, **m.setting(case, m.absent))) for m in MODIFIERS if m.of(case)]
    found += [
        ("several sequences", change(case, batch=1)),
        ("groups of query heads", change(case, heads_q=case.heads_kv)),
        ("several kv heads", change(case, heads_q=case.heads_q // case.heads_kv, heads_kv=1)),
        (part_words("given_scale"), change(case, scale=None)),
        (part_words("dlse"), change(case, grad=replace(case.grad, dlse=False))),
        (f"{case.grad.do} dO", change(case, grad=replace(case.grad, do=Grad().do))),
        (part_words("edits"), change(case, values=replace(case.values, edits=()))),
        (f"values of the regime {case.values.regime}", change(case, values=replace(case.values, regime="normal"))),
    ]
    plain = Storage()
    for field in fields(plain):
        words = _STORAGE.get(field.name, "").format(getattr(case.storage, field.name))
        without = replace(case.storage, **{field.name: getattr(plain, field.name)}) if words else case.storage
        found.append((words, change(case, storage=without)))
    yield from ((words, without) for words, without in found if without is not None and without != case)


_STORAGE = {
    "layout": "the layout {}",
    "gap": "gaps between rows",
    "offset": "tensors that begin inside their storage",
    "expand": "k and v of stride 0 over heads",
    "padding": "padding of {}",
    "page_size": "pages",
    "strided": "slopes, sinks and dLSE that are not contiguous",
    "transposed": "tensors whose channels are not contiguous",
    "kv": "K and V in one buffer",
}
"""By field of the storage."""
