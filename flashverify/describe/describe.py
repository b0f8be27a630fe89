"""The description of a subject, from the subject itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.campaign.corpus import corpus_cases
from flashverify.campaign.toolkit import bundled
from flashverify.campaign.worker.search import draw
from flashverify.case.space.matrix import standard_matrix
from flashverify.case.space.profiles import profile_of
from flashverify.case.space.rejections import raw_cases, rejections
from flashverify.case.text import format_case
from flashverify.describe.fields import field_texts
from flashverify.describe.record import Description
from flashverify.describe.untested import untested

if TYPE_CHECKING:
    from flashverify.subjects.interface import Subject

__all__ = ["described"]

_DRAWN = 8
"""Cases that are drawn; the first is the simplest of all."""
_SHOWN = slice(1, None, 3)
_RAW = 300
"""Draws on which the conditions of `also` are counted."""


def described(spec: str, subject: Subject, device: str, seed: int = 0) -> Description:
    """What a subject declares, what that leaves untested, and three cases that are drawn of it.

    Args:
        spec: as it was named.
        subject: loaded; nothing of it is run but `form`.
        device: `cpu` or `cuda`, for which cases are drawn.
        seed: of the drawn cases.
    """
    supports, contract = subject.supports, subject.contract
    drawn = draw(bundled.strategy(subject, device), _DRAWN, seed)
    shown = drawn[_SHOWN] if len(drawn) == _DRAWN else drawn[:3]
    conditions = []
    if supports.also is not None:
        conditions = rejections(supports, draw(raw_cases(supports, profile_of(device)), _RAW, seed))
    declared = {"supports": supports, "contract": contract} | ({"form": subject.form(drawn[-1])} if drawn else {})
    own, default = zip(*map(_fields, declared.values()), strict=True)
    fields = dict(zip(declared, own, strict=True))
    return Description(
        spec=spec,
        name=subject.name,
        device=device,
        supports=fields["supports"],
        contract=fields["contract"],
        form=fields.get("form", {}),
        defaults=dict(zip(declared, default, strict=True)),
        untested=untested(supports, contract),
        fixed=len(standard_matrix(supports, device=device)),
        corpus=sum(supports.refusal(case) is None for case in corpus_cases(device)),
        drawn=tuple(format_case(case) for case in shown),
        refused=sum(each.share for each in conditions),
        reasons=tuple(str(each) for each in conditions),
    )


def _fields(declared: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The fields that differ from their defaults, and the others, as Python text."""
    texts = field_texts(declared)
    default = {f.name for f in dataclasses.fields(declared) if getattr(declared, f.name) == f.default}
    kept, left = ({name: text for name, text in texts.items() if (name in default) is which} for which in (False, True))
    return kept, left
