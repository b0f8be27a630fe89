"""What a wrong semantics is: a name, a sentence, and the outputs that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.diagnosis.expected import Expected
from flashverify.outputs import OUTPUTS

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Change
    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

__all__ = ["TILES", "Alternative", "Expectations", "Finish", "Semantics"]

TILES = (16, 32, 64, 128)
"""Sizes of tiles that are tried where a form does not say."""

Expectations = dict[str, Expected]
Finish = Callable[[Expectations], Expectations]
Given = Callable[["Tensor", "Tensor"], tuple["Tensor", "Tensor"]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alternative:
    """One way in which a semantics may be wrong on one case.

    Attributes:
        inputs: the problem that the oracles are asked instead of the declared one; None for the declared one.
        detail: what tells it from the other alternatives, in words: a tile size, a tensor.
        finish: changes what follows from the inputs: called with the outputs of the forward, and with those of the backward.
        given: changes the O and LSE (natural) that the backward is given, which are the subject's own.
        steps: changes the steps of the backward, `backward_steps.Steps`; before `finish`.
        outputs: those that it can explain, where they are fewer than those of its semantics.
    """

    inputs: Inputs | None = None
    detail: str = ""
    finish: Finish | None = None
    given: Given | None = None
    steps: Change | None = None
    outputs: tuple[str, ...] = OUTPUTS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Semantics:
    """A wrong semantics.

    Attributes:
        name: in findings, scores and the bank of mutants.
        sentence: what the kernel does instead; begins with a lower-case letter, has no full stop.
        build: its alternatives on a case; none where the case has not what it is about.
        outputs: those that it can explain.
        one_way: a detail of its alternatives is the same on every case, as a number that the code holds is.
    """

    name: str
    sentence: str
    build: Callable[[Scene], Iterator[Alternative]] = field(repr=False)
    outputs: tuple[str, ...] = OUTPUTS
    one_way: bool = False
