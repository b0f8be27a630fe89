"""Which heads an output reads or sums over instead of the declared ones, by a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.said import Said

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.readings.masks.counted import Counted
    from flashverify.xray.heads import HeadMap

    Source = Callable[[Tensor, Tensor, Case], tuple[Tensor, Tensor]]

__all__ = ["heads_in_effect"]

_WHAT = {
    "v": "O reads V of",
    "k": "the logits are of K of",
    "dv": "dV sums by",
    "dq": "dQ reads K of",
    "dk": "dK sums by",
}


def _group(case: Case) -> int:
    return case.heads_q // case.heads_kv


_SOURCES: tuple[tuple[str, Source], ...] = (
    ("kv head h % Hkv", lambda b, h, c: (b, h % c.heads_kv)),
    ("the first kv head", lambda b, h, c: (b, h * 0)),
    ("the last kv head", lambda b, h, c: (b, h * 0 + c.heads_kv - 1)),
    ("the next kv head", lambda b, h, c: (b, (h // _group(c) + 1) % c.heads_kv)),
    ("the next kv head, the last one its own", lambda b, h, c: (b, (h // _group(c) + 1).clamp(max=c.heads_kv - 1))),
    ("the kv head before", lambda b, h, c: (b, (h // _group(c) - 1) % c.heads_kv)),
    ("the kv head before, the first one its own", lambda b, h, c: (b, (h // _group(c) - 1).clamp(min=0))),
    ("kv head h // Hkv", lambda b, h, c: (b, (h // c.heads_kv).clamp(max=c.heads_kv - 1))),
    ("kv head min(h, Hkv - 1)", lambda b, h, c: (b, h.clamp(max=c.heads_kv - 1))),
    ("the first sequence", lambda b, h, c: (b * 0, h // _group(c))),
    ("the last sequence", lambda b, h, c: (b * 0 + c.batch - 1, h // _group(c))),
    ("the next sequence", lambda b, h, c: ((b + 1) % c.batch, h // _group(c))),
    ("the sequence before", lambda b, h, c: ((b - 1) % c.batch, h // _group(c))),
)
"""Where query head h of sequence b reads, in words and as (sequence, kv head)."""


def heads_in_effect(found: list[Counted]) -> list[Said]:
    """What is read of which head, in words, where it is not the declared one and one formula says it of all cases."""
    said = []
    for tensor, what in _WHAT.items():
        there = [(c, m) for c in found for m in c.maps if m.tensor == tensor and bool((m.wrong & _told(m)).any())]
        if not tested_on([c.scene for c, _ in there]):
            continue
        having = [(c.scene.case, m) for c, m in there]
        words = next((words for words, source in _SOURCES if all(_is(case, m, source) for case, m in having)), "")
        if words:
            said.append(Said(f"{what} {words}, for query head h", len(having)))
    return said


def _is(case: Case, each: HeadMap, source: Source) -> bool:
    """Whether a map is that of a formula, where it is told."""
    b = torch.arange(case.batch).view(-1, 1).expand(-1, case.heads_q)
    h = torch.arange(case.heads_q).expand(case.batch, -1)
    to, head = source(b, h, case)
    readers = torch.zeros(case.batch * case.heads_q, case.batch * case.heads_kv, dtype=torch.bool)
    readers[(b * case.heads_q + h).flatten(), (to * case.heads_kv + head).flatten()] = True
    predicted = readers if each.readers == "q" else readers.mT
    return bool(((predicted == each.found.cpu()) | ~_told(each).cpu()).all())


def _told(each: HeadMap) -> Tensor:
    """The readers that are declared to read anything; one of hidden keys alone has a wrong mask, not a wrong head."""
    return each.declared.any(1, keepdim=True)
