"""Builds of semantics that exchange a step of the backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import Alternative

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flashverify.diagnosis.backward_steps import Change
    from flashverify.diagnosis.observation import Scene

    Changes = Iterator[tuple[str, Change]]

__all__ = ["by_steps", "has_gradients"]


def has_gradients(scene: Scene) -> bool:
    """Whether the case has a backward over at least one pair."""
    return scene.inputs.do is not None and bool(scene.case.seq_q and scene.case.seq_k)


def by_steps(changes: Callable[[Scene], Iterable[tuple[str, Change]]]) -> Callable[[Scene], Iterator[Alternative]]:
    """An alternative for each pair of a detail and a change of the steps that `changes` gives."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if has_gradients(scene):
            for detail, change in changes(scene):
                yield Alternative(steps=change, detail=detail)

    return build
