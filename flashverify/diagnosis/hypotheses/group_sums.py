"""Wrong semantics of the sum of dK and dV over a group of query heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Change
    from flashverify.diagnosis.observation import Scene

__all__ = ["GROUP_SUMS"]


def _group(change: Callable[[int, int, int], Tensor]) -> Callable[[Scene], Iterator[tuple[str, Change]]]:
    """The factor of each query head's share of dK and dV, of (query heads, kv heads, group)."""

    def changes(scene: Scene) -> Iterator[tuple[str, Change]]:
        if scene.group > 1:
            weight = change(scene.case.heads_q, scene.case.heads_kv, scene.group).double()
            yield "", lambda steps: replace(steps, weight=weight)

    return changes


def _interleaved(scene: Scene) -> Iterator[tuple[str, Change]]:
    case = scene.case
    if scene.group > 1 and case.heads_kv > 1:
        heads = torch.arange(case.heads_q) % case.heads_kv
        yield "", lambda steps: replace(steps, kv_head=heads)


def _lost(which: int) -> Callable[[int, int, int], Tensor]:
    return lambda heads, _kv, group: torch.arange(heads) % group != which % group


def _members(scene: Scene) -> Iterator[tuple[str, Change]]:
    for which, words in ((0, "the first one"), (-1, "the last one")):
        for detail, change in _group(_lost(which))(scene):
            yield detail or words, change


def _some(scene: Scene) -> Iterator[tuple[str, Change]]:
    for count in (2, 3, 4, 8, 16):
        if count < scene.group:
            for words, first in (("first", True), ("last", False)):

                def kept(heads: int, _kv: int, group: int, count: int = count, first: bool = first) -> Tensor:
                    member = torch.arange(heads) % group
                    return member < count if first else member >= group - count

                for _, change in _group(kept)(scene):
                    yield f"the {words} {count}", change


def _rounded(scene: Scene) -> Iterator[tuple[str, Change]]:
    for count in (2, 4, 8, 16):
        kept = scene.group // count * count
        if 0 < kept < scene.group:
            for _, change in _group(lambda heads, _kv, group, kept=kept: torch.arange(heads) % group < kept)(scene):  # type: ignore[misc]
                yield f"{count} at a time", change


def _twice(scene: Scene) -> Iterator[tuple[str, Change]]:
    for which, words in ((0, "the first one"), (-1, "the last one")):
        lost = _lost(which)
        for _, change in _group(lambda heads, kv, group, lost=lost: 2.0 - lost(heads, kv, group).double())(scene):  # type: ignore[misc]
            yield words, change


GROUP_SUMS = (
    Semantics(
        name="group-mean",
        sentence="dK and dV are the mean over a group of query heads, not the sum",
        build=by_steps(_group(lambda heads, _kv, group: torch.full((heads,), 1.0 / group))),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="group-member-lost",
        sentence="of a group of query heads one does not reach dK and dV",
        build=by_steps(_members),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="group-some-members-only",
        sentence="of a group of query heads only some reach dK and dV, however many there are",
        build=by_steps(_some),
        outputs=("dk", "dv"),
        one_way=True,
    ),
    Semantics(
        name="group-rest-lost",
        sentence="the query heads of a group are taken several at a time, and the rest does not reach dK and dV",
        build=by_steps(_rounded),
        outputs=("dk", "dv"),
        one_way=True,
    ),
    Semantics(
        name="group-member-twice",
        sentence="of a group of query heads one is counted twice in dK and dV",
        build=by_steps(_twice),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="group-sum-interleaved",
        sentence="the gradient of query head h is added to kv head h % Hkv instead of h // (Hq // Hkv)",
        build=by_steps(_interleaved),
        outputs=("dk", "dv"),
    ),
)
