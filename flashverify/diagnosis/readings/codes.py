"""What K, V or Q are read as where they are codes: a code, a zero point and a scale, each the declared one or another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.code_reading import numbers_as, operand_codes
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.said import Said
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.code_reading import Reading
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

    Part = Callable[[Reading, Reading], Tensor | None]
    """Of an operand, and of the other one of K and V, what stands for a part of its codes; None where it has none."""

__all__ = ["codes_in_effect"]

_FEWEST = 3
"""Failing cases on which a formula holds at least."""
_COARSE = 0.05
"""Share of the largest element that a value of O may be off a formula that is worth its bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class _Formula:
    """`scale * (number - zero)` with the parts in words; each part is one of its table."""

    scale: str
    number: str
    zero: str

    @property
    def changed(self) -> int:
        """Parts that are not as declared."""
        return (self.scale != "scale") + (self.number != "code") + (self.zero != "zero point")

    def words(self, name: str, *, zeros: bool) -> str:
        """As `V is read as scale * (code - zero point of K)`; without zero points the declared one is not said."""
        other = "K" if name == "v" else "V"
        inner = self.number if self.zero == "zero point" and not zeros else f"({self.number} - {self.zero})"
        return f"{name.upper()} is read as {self.scale} * {inner}".replace("{other}", other)

    def value(self, mine: Reading, other: Reading) -> tuple[Tensor, Tensor] | None:
        """The values and their scales; None where the case has not what the formula is about."""
        parts = _SCALES[self.scale](mine, other), _NUMBERS[self.number](mine, other), _ZEROS[self.zero](mine, other)
        scale, number, zero = parts
        return (
            None
            if scale is None or number is None or zero is None
            else mine.value(numbers=number, scale=scale, zero=zero)
        )


def codes_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """The formula of the codes of one operand that makes the O and LSE of all cases; empty where none does.

    Args:
        trials: runs of the subject.
        scenes: failing runs, the one that tells most first.
    """
    scenes = [scene for scene in scenes if scene.case.quantised is not None and scene.failures.keys() & set(FORWARD)]
    if len(scenes) < _FEWEST or not tested_on(scenes):
        return []
    how = scenes[0].case.quantised
    assert how is not None
    of_v = all("lse" in scene.outputs and "lse" not in scene.failures for scene in scenes)
    for name in ("v",) if of_v else ("k", *(("q",) if how.q else ())):
        for formula in _formulas():
            if not trials.within():
                return []
            if all(_near(scene, name, formula) for scene in scenes) and all(
                _is(scene, name, formula) for scene in scenes
            ):
                return [Said(formula.words(name, zeros=how.zeros), len(scenes))]
    return []


def _formulas() -> Iterator[_Formula]:
    """Those with one part that is not as declared, then with two."""
    every = [_Formula(scale, number, zero) for number in _NUMBERS for zero in _ZEROS for scale in _SCALES]
    for n in (1, 2):
        yield from (formula for formula in every if formula.changed == n)


def _given(scene: Scene, name: str, formula: _Formula) -> dict[str, Tensor] | None:
    """The operand under the formula; None where that says nothing else than what is declared."""
    mine = operand_codes(scene.problem, name)
    other = operand_codes(scene.problem, {"k": "v", "v": "k"}.get(name, name))
    found = formula.value(mine, other)
    if found is None or torch.equal(found[0], mine.value()[0]):
        return None
    return {name: found[0], f"{name}_scale": found[1]}


def _near(scene: Scene, name: str, formula: _Formula) -> bool:
    """Whether the O of the formula is about that of the subject."""
    given: dict[str, Any] | None = _given(scene, name, formula)
    if given is None:
        return False
    inputs = replace(scene.inputs, **given)
    if name != "v" or "weights" not in scene.memo:
        z = logits(inputs)
        weights = (z - z.logsumexp(-1, keepdim=True)).exp().nan_to_num(0.0, 0.0, 0.0)
        if name == "v":
            scene.memo["weights"] = weights
    else:
        weights = scene.memo["weights"]
    made = weights @ inputs.v.double().repeat_interleave(scene.group, 1)
    wrong = scene.failures.get("o")
    if wrong is None:
        return True
    off = (made - scene.outputs["o"]).abs()[wrong]
    return bool((off <= _COARSE * made.abs().amax()).all())


def _is(scene: Scene, name: str, formula: _Formula) -> bool:
    """Whether the outputs of the forward lie within the bounds under the formula."""
    given: dict[str, Any] | None = _given(scene, name, formula)
    names = frozenset(FORWARD) & scene.outputs.keys()
    return given is not None and scene.agrees(Alternative(inputs=replace(scene.inputs, **given)), names)


def _at(axis: int, step: int, part: str) -> Part:
    """A part of the neighbour along an axis; of the first one where `step` is 0."""

    def of(mine: Reading, beside: Reading) -> Tensor | None:  # noqa: ARG001
        x: Tensor = getattr(mine, part)
        if x.shape[axis] < 2:
            return None
        return x.narrow(axis, 0, 1).expand_as(x) if step == 0 else x.roll(-step, axis)

    return of


def _places(part: str, words: str) -> dict[str, Part]:
    """A part of neighbours, of the first head or key, and of the other tensor."""
    found: dict[str, Part] = {
        f"{words} of {{other}}": lambda mine, beside: None if beside is mine else getattr(beside, part)
    }
    for axis, what in ((1, "head"), (2, "key"), (0, "sequence")):
        found[f"{words} of the next {what}"] = _at(axis, 1, part)
        found[f"{words} of the {what} before"] = _at(axis, -1, part)
        found[f"{words} of the first {what}"] = _at(axis, 0, part)
    return found


def _as(name: str) -> Part:
    def of(mine: Reading, beside: Reading) -> Tensor | None:  # noqa: ARG001
        return None if mine.name in ("int4", name) else numbers_as(mine.codes, name)

    return of


def _of_group(step: int) -> Part:
    def of(mine: Reading, beside: Reading) -> Tensor | None:  # noqa: ARG001
        if mine.per < 2 or mine.groups.shape[2] < 2:
            return None
        return mine.of_groups(torch.arange(mine.codes.shape[2]) // mine.per + step)

    return of


def _swapped(mine: Reading, beside: Reading) -> Tensor | None:  # noqa: ARG001
    if mine.name != "int4":
        return None
    return mine.numbers.view(*mine.numbers.shape[:-1], -1, 2).flip(-1).flatten(-2)


_NUMBERS: dict[str, Part] = {
    "code": lambda mine, beside: mine.numbers,
    **{f"code as {name}": _as(name) for name in ("e4m3", "e5m2", "int8")},
    "code with the halves of its byte exchanged": _swapped,
    **{words: part for words, part in _places("numbers", "code").items() if "{other}" not in words},
}
_ZEROS: dict[str, Part] = {
    "zero point": lambda mine, beside: mine.zero,
    "0": lambda mine, beside: torch.zeros_like(mine.zero),
    "8": lambda mine, beside: torch.full_like(mine.zero, 8.0),
    "(minus the zero point)": lambda mine, beside: -mine.zero,
    "twice the zero point": lambda mine, beside: 2 * mine.zero,
    **_places("zero", "zero point"),
}
_SCALES: dict[str, Part] = {
    "scale": lambda mine, beside: mine.scale,
    "1": lambda mine, beside: torch.ones_like(mine.scale),
    "scale^2": lambda mine, beside: mine.scale**2,
    "(1 / scale)": lambda mine, beside: torch.where(mine.scale > 0, 1.0 / mine.scale, 0.0),
    **_places("scale", "scale"),
    "scale of the next group": _of_group(1),
    "scale of the group before": _of_group(-1),
}
