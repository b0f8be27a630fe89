"""Gradients that are the declared ones times a number: one for the whole case with a name, or one for each head, sequence, row, key or channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.numbers import numbers_near
from flashverify.diagnosis.readings.fresh import scenes_of
from flashverify.formats import FORMATS
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.numbers import Number
    from flashverify.diagnosis.trials import Trials

__all__ = ["Scaled", "proportional", "scaled"]

_NAMES = {"dq": "dQ", "dk": "dK", "dv": "dV"}
_CLEAR = 16.0
"""Times its bound that an element is at least, for its ratio to be known."""
_FEWEST = 3
"""Failing cases on which a proportion is read."""
_MOST = 6
_TILE = (4, 513)
"""Sizes of a tile, the last one excluded."""
_WHOLE = 0.02
"""How far a number times a whole one may be from 1."""
_AXES = (
    ("batch", "sequence"),
    ("head", "head"),
    ("row", "row"),
    ("key", "key"),
    ("bucket", "entry"),
    ("dim", "channel"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaled:
    """An output times a number with a name."""

    output: str
    number: Number

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where the number is 1."""
        by = self.number.of(scene)
        if scene.inputs.do is None or by - by != 0.0 or abs(by - 1.0) < 1e-12:
            return None

        def finish(values: Expectations) -> Expectations:
            return {name: x.times(by) if name == self.output else x for name, x in values.items()}

        return Alternative(finish=finish)

    def words(self, _dlse: bool = False) -> str:
        """A sentence without its full stop."""
        return f"{_NAMES.get(self.output, self.output)} is {self.number.words} times what is declared"


def scaled(scene: Scene, output: str) -> Iterator[Scaled]:
    """Numbers that give the whole output of a case."""
    found = _ratios(scene, output, None)
    if found is None:
        return
    value, error = float(found[0].flatten()[0]), float(found[1].flatten()[0])
    for number in numbers_near(value, max(error, 1e-5), scene):
        if number.words != "1":
            yield Scaled(output=output, number=number)


def proportional(trials: Trials, scene: Scene, output: str) -> str:
    """What an output that is the declared one times numbers without a name looks like, without a full stop; empty where it is none.

    One number for the whole case is looked for first, then one for each place of one axis.
    """
    scenes = [each for each in trials.scenes.values() if output in each.failures]
    if len(scenes) < _FEWEST and trials.left():
        scenes = scenes_of(trials, scene, frozenset({output}))
    scenes = _of_several_sizes(scene, scenes)[:_MOST]
    for axis, word in ((None, ""), *_AXES):
        if axis is not None and not _has(output, axis):
            continue
        found = [_ratios(each, output, axis) for each in scenes]
        told = [each[0] for each in found if each is not None]
        if len(told) < _FEWEST or len(told) < len(found):
            continue
        if axis is not None and sum(each.numel() > 1 for each in told) < _FEWEST:
            continue
        values = torch.cat([each.flatten() for each in told])
        values = values[torch.isfinite(values)]
        if not bool((values != 0).any()):  # what is lost on small cases is seldom lost on all
            return ""
        name = _NAMES.get(output, output)
        if axis is None and (words := _pieces(trials, output, scenes, told)):
            return f"{name} is {words} times what is declared"
        if axis is None:
            return f"{name} is what is declared times one number for the whole case, between {float(values.min()):.4g} and {float(values.max()):.4g}"
        return f"{name} is what is declared times a number of each {word}, between {float(values.min()):.4g} and {float(values.max()):.4g}"
    return ""


def _told(scene: Scene, output: str) -> bool:
    """Whether a right case would not be right with another number."""
    if output not in scene.right:
        return False
    right = scene.right[output]
    return bool((torch.isfinite(right.total) & (right.value.abs() > _CLEAR * right.total)).any())


def _of_several_sizes(scene: Scene, found: list[Scene]) -> list[Scene]:
    """The case itself and others, those of other sizes first."""
    by_size = {(each.case.seq_q, each.case.seq_k): each for each in reversed(found)}
    return list(dict.fromkeys([scene, *by_size.values(), *found]))


def _pieces(trials: Trials, output: str, scenes: list[Scene], told: list[Tensor]) -> str:
    """`1 / the number of tiles of 40 rows`, where the numbers are 1 over whole ones that sizes of one tile give; empty where not."""
    counts = [round(1 / abs(float(each.flatten()[0]))) if float(each.flatten()[0]) else 0 for each in told]
    near = all(n > 1 and abs(float(each.flatten()[0]) * n - 1) < _WHOLE for n, each in zip(counts, told, strict=True))
    if not near:
        return ""
    right = [each for each in trials.scenes.values() if output not in each.failures and _told(each, output)]
    known = [*zip(scenes, counts, strict=True), *((each, 1) for each in right)]
    for axis in ("rows", "keys"):
        sizes = [(each.case.seq_q if axis == "rows" else each.case.seq_k, n) for each, n in known]
        fits = [t for t in range(*_TILE) if all(max(1, -(-size // t)) == n for size, n in sizes)]
        if fits:
            size = f"{fits[0]} to {fits[-1]}" if len(fits) > 1 else str(fits[0])
            return f"1 / the number of tiles of {size} {axis}"
    return ""


def _has(output: str, axis: str) -> bool:
    return any(name.startswith(axis) for name in output_spec(output).axes)


def _ratios(scene: Scene, output: str, axis: str | None) -> tuple[Tensor, Tensor] | None:
    """The number of each place of an axis, NaN where no element tells it, and how far it is known; None where the output is no such multiple."""
    if output not in scene.failures or output not in scene.right:
        return None
    got, right = scene.outputs[output], scene.right[output]
    free = scene.free.get(output)
    asked = torch.isfinite(right.total) & torch.isfinite(right.value)
    asked = asked if free is None else asked & ~free
    if not bool(torch.isfinite(got[asked]).all()):
        return None
    where = [
        number for number, name in enumerate(output_spec(output).axes) if axis is not None and name.startswith(axis)
    ]
    others = [number for number in range(got.dim()) if number not in where]
    value, bound = (torch.where(asked, x, 0.0) for x in (right.value, right.total))
    known = asked & (value.abs() > _CLEAR * bound)
    if axis is not None and int(known.sum(others).max() if others else 0) < 2:
        return None
    if int(known.sum()) < 2:
        return None
    fine = torch.where(known, value, 0.0)
    made = torch.where(known, got, 0.0)
    square = (fine**2).sum(others, keepdim=True) if others else fine**2
    number = ((made * fine).sum(others, keepdim=True) if others else made * fine) / square.clamp(min=1e-300)
    there = square > 0
    u = 4 * FORMATS[output_spec(output).dtype_of(scene.case.dtype)].u
    near = (got - number * value).abs() <= bound * number.abs().clamp(min=1.0) + u * (number * value).abs()
    if not bool((near | ~asked | ~there).all()):
        return None
    error = (bound.abs() * known).amax(others, keepdim=True) / fine.abs().amax(others, keepdim=True).clamp(min=1e-300)
    return torch.where(there, number, torch.nan), error
