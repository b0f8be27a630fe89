"""Sums over rows or pairs, dsink, drelative_bias and the gradient of a shared bias: places that they leave out, count twice or take in part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.distance_places import distances
from flashverify.diagnosis.readings.backward.pair_places import Place, expanded, fixed_places
from flashverify.diagnosis.readings.backward.row_runs import rows_in_runs
from flashverify.diagnosis.readings.backward.sum_thresholds import rows_by_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

__all__ = ["OF_SUMS", "SumFormula", "is_shared_bias", "sum_formulas", "summed"]

OF_SUMS = {"delta": "delta as it is returned", "dsink": "dsink", "dbias": "dbias", "drelative_bias": "drelative_bias"}
"""Outputs that are read so, with their names in a sentence; delta is a sum of nothing but its own terms."""
_OF_ROWS = ("delta", "dsink")
_TERMS = ("all", "delta", "dLSE")
_FACTORS = (0, 2, -1)
_HOW = {0: "leaves out what it sums", 2: "counts twice what it sums", -1: "takes with the other sign what it sums"}
_OF_TERM = {0: "is missing", 2: "counts twice", -1: "has the other sign"}
_OF_DELTA = {0: "0", 2: "twice what is declared", -1: "what is declared with the other sign"}
_CLEAR = 4.0
"""Times its bound that what a place adds is at least, somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumFormula:
    """A place at which what is summed counts another number of times.

    Attributes:
        output: one of `OF_SUMS`.
        term: what counts so: one of `_TERMS`.
        factor: how often, one of `_FACTORS`.
        place: where.
    """

    output: str
    term: str
    factor: int
    place: Place

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where the case has not that place."""
        if scene.inputs.do is None or not scene.case.seq_q or not scene.case.seq_k:
            return None
        where = _where(self.place, scene, self.output)
        if where is None or not bool(where.any()):
            return None
        return Alternative(steps=lambda s: self._changed(s, where))

    def _changed(self, s: Steps, where: Tensor) -> Steps:
        if self.output in _OF_ROWS:
            delta, dlse = (
                torch.where(where, self.factor * x, x) if self.term in (term, "all") else x
                for term, x in (("delta", s.delta), ("dLSE", s.dlse))
            )
            return replace(s, delta=delta, dlse=dlse)
        ds = s.formula()
        more = (self.factor - 1) * torch.where(where, _pairs_of(self.term, s), 0.0)
        return replace(s, p=max(1, self.factor) * s.p, ds=ds, dbias_ds=ds + more)

    def words(self, _dlse: bool) -> str:
        """A sentence without its full stop."""
        name = OF_SUMS[self.output]
        if self.term != "all":
            return f"in {name} {self.term} {_OF_TERM[self.factor]} {self.place.words}"
        if self.output == "delta":
            return f"{name} is {_OF_DELTA[self.factor]} {self.place.words}"
        return f"{name} {_HOW[self.factor]} {self.place.words}"


def sum_formulas(scene: Scene, output: str, left: Callable[[], bool]) -> Iterator[SumFormula]:
    """Formulas that give the output of a case, the simpler places first.

    Args:
        scene: where it is wrong.
        output: one of `OF_SUMS`.
        left: whether there is time.
    """
    if scene.o is None or scene.lse is None or (output == "dbias" and not is_shared_bias(scene)):
        return
    s, right, got = steps_of(scene.inputs, scene.o, scene.lse), scene.right[output], scene.outputs[output]
    of = _pairs_of if output not in _OF_ROWS else partial(_rows_of, dlse=_has_dlse(scene, output))
    asked = torch.isfinite(right.total) & torch.isfinite(got)
    if output in scene.free:
        asked = asked & ~scene.free[output]
    whole = summed(scene, output, of("all", s), s)
    if not bool(((whole - right.value).abs() <= right.total)[asked].all()) or bool((~asked).all()):
        return
    error = got - right.value
    for term in _TERMS if scene.inputs.dlse is not None and _has_dlse(scene, output) else _TERMS[:1]:
        value = of(term, s)
        if output in _OF_ROWS:
            yield from _by_values(scene, output, term, (s, value, error, right.total))
        if output == "dsink" and s.sink_weight is not None:
            for place in rows_in_runs(scene, s.sink_weight * value, error, right.total):
                yield SumFormula(output=output, term=term, factor=0, place=place)
        for place in (*fixed_places(scene), *(distances(scene) if output == "drelative_bias" else ())):
            if not left():
                return
            where = _where(place, scene, output)
            if where is None or not bool(where.any()) or bool(where.all()):
                continue
            part = summed(scene, output, torch.where(where, value, 0.0), s)
            for factor in _FACTORS:
                near = (error - (factor - 1) * part).abs() <= right.total
                if bool(near[asked].all()) and bool((part.abs() > _CLEAR * right.total)[asked].any()):
                    yield SumFormula(output=output, term=term, factor=factor, place=place)


def _by_values(
    scene: Scene, output: str, term: str, read: tuple[Steps, Tensor, Tensor, Tensor]
) -> Iterator[SumFormula]:
    """Rows by a value of theirs that count another number of times."""
    s, value, error, bound = read
    parts = -value if output == "delta" else value if s.sink_weight is None else s.sink_weight * value
    for factor in _FACTORS:
        for place in rows_by_values(scene, s, (factor - 1) * parts, error, bound):
            yield SumFormula(output=output, term=term, factor=factor, place=place)


def is_shared_bias(scene: Scene) -> bool:
    """Whether there is a bias of several sequences or heads, of whose gradient each element is a sum."""
    shape = scene.inputs.bias_shape
    return shape is not None and tuple(shape[:2]) != tuple(scene.case.shape_q[:2])


def _where(place: Place, scene: Scene, output: str) -> Tensor | None:
    """Bool, the rows or the pairs of a place; None where it is none of rows alone."""
    pairs = place.pairs(scene)
    if output not in _OF_ROWS:
        return expanded(place, scene)
    return pairs[..., 0].expand(scene.case.shape_q[:3]) if pairs.shape[3] == 1 else None


def _has_dlse(scene: Scene, output: str) -> bool:
    """Whether dLSE is one of the terms."""
    return output != "delta" or scene.form.stored_delta == "minus_dlse"


def _rows_of(term: str, s: Steps, dlse: bool) -> Tensor:
    """What each row adds, before the weight of the sink: dLSE, if it is one of the terms, - delta, or one of the two."""
    return (s.dlse * (dlse and term != "delta") - s.delta * (term != "dLSE")) * s.some


def _pairs_of(term: str, s: Steps) -> Tensor:
    """What each pair adds: dS, or a part of it."""
    if term == "all":
        return s.formula()
    return s.p * (s.dlse if term == "dLSE" else -s.delta).unsqueeze(-1)


def summed(scene: Scene, output: str, x: Tensor, s: Steps) -> Tensor:
    """What these addends, of the rows or of the pairs, give of an output."""
    if output == "dsink":
        assert s.sink_weight is not None
        return (s.sink_weight * x).sum((0, 2))
    if output == "delta":
        return -x
    inputs = scene.inputs
    if output == "dbias":
        assert inputs.bias_shape is not None
        return x.sum([axis for axis in range(2) if inputs.bias_shape[axis] == 1], keepdim=True)
    assert inputs.bucket_count is not None
    buckets = inputs.relative_buckets.long().expand_as(x).transpose(0, 1).flatten(1)
    table = x.new_zeros(x.shape[1], inputs.bucket_count)
    return table.scatter_add(1, buckets, x.transpose(0, 1).flatten(1))
