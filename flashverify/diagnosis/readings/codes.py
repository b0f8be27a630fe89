"""What K, V or Q are read as where they are codes: a code, a zero point and a scale, each the declared one or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.code_reading import numbers_as, operand_codes
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.code_groups import of_groups
from flashverify.diagnosis.readings.code_heads import of_query_heads, spread
from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.said import Said, listed
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

    def words(self, names: tuple[str, ...], *, zeros: bool) -> str:
        """As `V is read as scale * (code - zero point of K)`; without zero points the declared one is not said."""
        other = "K" if names == ("v",) else "V" if names == ("k",) else "the other"
        inner = self.number if self.zero == "zero point" and not zeros else f"({self.number} - {self.zero})"
        verb = "is" if len(names) == 1 else "are"
        formula = f"{self.scale} * {inner}".replace("{other}", other)
        if names == ("q",):
            formula = formula.replace("key", "row")
        return f"{listed([name.upper() for name in names])} {verb} read as {formula}"

    def value(self, mine: Reading, other: Reading) -> tuple[Tensor, Tensor] | None:
        """The values and their scales; None where the case has not what the formula is about."""
        parts = _SCALES[self.scale](mine, other), _NUMBERS[self.number](mine, other), _ZEROS[self.zero](mine, other)
        if any(x is None for x in parts):
            return None
        heads, own = max(x.shape[1] for x in parts if x is not None), mine.scale.shape[1]
        scale, number, zero = (
            x if x is None or x.shape[1] == heads else x.repeat_interleave(heads // own, 1) for x in parts
        )
        whole = mine if heads == own else mine.repeated(heads // own)
        return whole.value(numbers=number, scale=scale, zero=zero)


def codes_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """The formula of the codes of one operand, or of K and V alike, that makes the O and LSE of all cases; empty where none does.

    One that the right cases do not contradict is said before others, which then hold on the cases that fail.

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
    together = (("v",),) if of_v else (("k",), ("k", "v"), *((("q",), ("q", "k")) if how.q else ()))
    right = [scene for scene in trials.scenes.values() if scene.case.quantised is not None and not scene.failures]
    contradicted = ""
    for formula, names in ((formula, names) for formulas in _formulas() for names in together for formula in formulas):
        if not trials.within():
            break
        if not all(_near(scene, names, formula) for scene in scenes) or not all(
            _is(scene, names, formula) for scene in scenes
        ):
            continue
        words = formula.words(names, zeros=how.zeros)
        if all(_given(scene, names, formula) is None or _is(scene, names, formula) for scene in right):
            return [Said(words, len(scenes))]
        contradicted = contradicted or words
    return [Said(f"{contradicted}, on the cases that fail", len(scenes))] if contradicted else []


def _formulas() -> Iterator[list[_Formula]]:
    """Those with one part that is not as declared, then with two."""
    every = [_Formula(scale, number, zero) for number in _NUMBERS for zero in _ZEROS for scale in _SCALES]
    for n in (1, 2):
        yield [formula for formula in every if formula.changed == n]


def _given(scene: Scene, names: tuple[str, ...], formula: _Formula) -> dict[str, Any] | None:
    """The operands under the formula; None where that says nothing else than what is declared."""
    given: dict[str, Any] = {}
    for name in names:
        mine = operand_codes(scene.problem, name)
        other = operand_codes(scene.problem, {"k": "v", "v": "k"}.get(name, name))
        found = formula.value(mine, other)
        if found is None:
            return None
        declared = mine.value()[0]
        if not torch.equal(found[0], declared.repeat_interleave(found[0].shape[1] // declared.shape[1], 1)):
            given |= {name: found[0], f"{name}_scale": found[1]}
    return given or None


def _near(scene: Scene, names: tuple[str, ...], formula: _Formula) -> bool:
    """Whether the O of the formula is about that of the subject."""
    given = _given(scene, names, formula)
    if given is None:
        return False
    inputs = spread(scene.inputs, given)
    if names != ("v",) or "weights" not in scene.memo:
        z = logits(inputs)
        weights = (z - z.logsumexp(-1, keepdim=True)).exp().nan_to_num(0.0, 0.0, 0.0)
        if names == ("v",):
            scene.memo["weights"] = weights
    else:
        weights = scene.memo["weights"]
    made = weights @ inputs.v.double().repeat_interleave(weights.shape[1] // inputs.v.shape[1], 1)
    wrong = scene.failures.get("o")
    if wrong is None:
        return True
    off = (made - scene.outputs["o"]).abs()[wrong]
    return bool((off <= _COARSE * made.abs().amax()).all())


def _is(scene: Scene, names: tuple[str, ...], formula: _Formula) -> bool:
    """Whether the outputs of the forward lie within the bounds under the formula."""
    given = _given(scene, names, formula)
    outputs = frozenset(FORWARD) & scene.outputs.keys()
    return given is not None and scene.agrees(Alternative(inputs=spread(scene.inputs, given)), outputs)


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
    "half the zero point": lambda mine, beside: mine.zero / 2,
    "(the zero point - 1)": lambda mine, beside: mine.zero - 1,
    "(the zero point + 1)": lambda mine, beside: mine.zero + 1,
    **_places("zero", "zero point"),
    **of_groups("zero", "zero point"),
    **of_query_heads("zero", "zero point"),
}
_SCALES: dict[str, Part] = {
    "scale": lambda mine, beside: mine.scale,
    "1": lambda mine, beside: torch.ones_like(mine.scale),
    "scale^2": lambda mine, beside: mine.scale**2,
    "2 * scale": lambda mine, beside: 2 * mine.scale,
    "scale / 2": lambda mine, beside: mine.scale / 2,
    "(1 / scale)": lambda mine, beside: torch.where(mine.scale > 0, 1.0 / mine.scale, 0.0),
    **_places("scale", "scale"),
    **of_groups("scale"),
    **of_query_heads("scale"),
}
