"""Operands that are read as zeros, at some keys most often: what was not loaded is seen all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.observation import Scene

__all__ = ["ZEROS"]


def _of_zeros(*names: str) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.case.quantised is None and scene.case.seq_q and scene.case.seq_k:
            zeros: dict[str, Any] = {name: torch.zeros_like(getattr(scene.inputs, name)) for name in names}
            yield Alternative(inputs=replace(scene.inputs, **zeros))

    return build


ZEROS = (
    Semantics(
        name="keys-as-zeros",
        sentence="keys and values are read as zeros, which are seen",
        build=_of_zeros("k", "v"),
        outputs=FORWARD,
    ),
    Semantics(name="values-as-zeros", sentence="values are read as zeros", build=_of_zeros("v"), outputs=FORWARD),
    Semantics(
        name="k-as-zeros", sentence="keys are read as zeros, values as declared", build=_of_zeros("k"), outputs=FORWARD
    ),
)
