"""Cases of equal shapes that differ from a case in one thing: what a cache forgets in its key."""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Any

from flashverify.case.case import DTYPES, LAYOUTS, Values
from flashverify.case.changes import cumulate
from flashverify.case.masks.mask import Packed, drawn_anew, of_sequences
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask
    from flashverify.subjects.interface import Subject

__all__ = ["Neighbour", "dtypes_of", "other_settings", "other_storage", "settings_of", "strides_of"]

Neighbour = tuple[str, "Case"]
"""What is different, in words, and the case."""

_GAP = 8


def other_settings(subject: Subject, case: Case) -> list[Neighbour]:
    """Cases with another scale, and with another mask or modifier drawn by the case's text, over the same tensors, as far as the subject accepts them."""
    return [*_drawn(subject, case, _scale(case)), *_drawn(subject, case, _settings(case))]


def other_storage(subject: Subject, case: Case) -> list[Neighbour]:
    """Cases of equal shapes with other strides, and in another dtype, each drawn by the case's text, as far as the subject accepts them."""
    return [*_drawn(subject, case, strides_of(case)), *_drawn(subject, case, dtypes_of(case))]


def settings_of(case: Case) -> Iterator[Neighbour]:
    """The case with another scale, softcap, dropout or mask, one at a time, whether the subject accepts it or not."""
    yield from _scale(case)
    yield from _settings(case)


def _drawn(subject: Subject, case: Case, candidates: Iterable[Neighbour]) -> list[Neighbour]:
    """One of the candidates that the subject accepts, or none."""
    fit = [(what, other) for what, other in candidates if other != case and subject.supports.refusal(other) is None]
    start = zlib.crc32(f"neighbour\0{case}".encode()) % len(fit) if fit else 0
    return fit[start : start + 1]


def _scale(case: Case) -> Iterator[Neighbour]:
    yield "another scale", _with(case, scale=case.softmax_scale / 2 or case.dim_qk**-0.5)


def _settings(case: Case) -> Iterator[Neighbour]:
    if case.logits.softcap is not None:
        logits = dataclasses.replace(case.logits, softcap=case.logits.softcap / 4)
        yield "another softcap", _with(case, logits=logits)
    if case.dropout:
        yield "another probability of dropout", _with(case, dropout=case.dropout / 2)
    for what, change in _MASKS.items():
        try:
            yield what, _with(case, mask=change(case))
        except UsageError:
            continue


def _other_causal(case: Case) -> Mask:
    """Causal turned off, or on where there is no mask."""
    if case.mask.causal is None and case.mask.given():
        return case.mask
    return dataclasses.replace(case.mask, causal="top-left" if case.mask.causal is None else None)


def _other_alignment(case: Case) -> Mask:
    """The other alignment of causal."""
    others: dict[Any, Any] = {"top-left": "bottom-right", "bottom-right": "top-left", None: None}
    return dataclasses.replace(case.mask, causal=others[case.mask.causal])


def _other_window(case: Case) -> Mask:
    """Half as wide a window; wider by one where it has no width."""
    if case.mask.window is None:
        return case.mask
    longest = max(case.seq_q, case.seq_k)
    left, right = (None if side is None else min(side, longest) // 2 if side else side + 1 for side in case.mask.window)
    return dataclasses.replace(case.mask, window=(left, right))


def _other_patterns(case: Case) -> Mask:
    return drawn_anew(case.mask, case.values.seed ^ 1)


def _other_boundaries(case: Case) -> Mask:
    """Packed sequences in reverse order: as many, as long, and as long altogether."""
    packed = case.mask.packed
    if packed is None:
        return case.mask
    lengths = packed.lengths()[::-1]
    turned = Packed(cumulate(rows for rows, _ in lengths), cumulate(keys for _, keys in lengths))
    return of_sequences(case.mask, list(reversed(range(len(lengths)))), turned)


_MASKS: dict[str, Callable[[Case], Mask]] = {
    "causal turned on or off": _other_causal,
    "another alignment of causal": _other_alignment,
    "another window": _other_window,
    "another pattern of the mask": _other_patterns,
    "other boundaries of the packed sequences": _other_boundaries,
}


def strides_of(case: Case) -> Iterator[Neighbour]:
    """Another layout, whose strides need no more memory; other gaps where all layouts have the same strides."""
    storage = case.storage
    layouts = [layout for layout in LAYOUTS if layout != storage.layout]
    if max(case.seq_q, case.seq_k) < 2 or case.heads_kv < 2 or storage.expand:
        layouts = []
    for layout in layouts:
        yield f"strides of the layout {layout}", _with(case, storage=dataclasses.replace(storage, layout=layout))
    if not layouts:
        gap = 0 if storage.gap else _GAP
        yield "other gaps between rows", _with(case, storage=dataclasses.replace(storage, gap=gap))


def dtypes_of(case: Case) -> Iterator[Neighbour]:
    """The case in every other dtype, whether the subject accepts it or not."""
    for dtype in DTYPES:
        if dtype != case.dtype:
            precision = case.precision if dtype == "fp32" else "ieee"
            yield f"{dtype}", _with(case, dtype=dtype, precision=precision)


def _with(case: Case, **changes: Any) -> Case:
    """The case with changes and with normal values, on which most defects show."""
    values = Values(regime="normal", seed=case.values.seed)
    return dataclasses.replace(case, values=values, **changes)
