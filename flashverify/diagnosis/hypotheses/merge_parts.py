"""Wrong semantics of merges that lose partial results, count empty ones, or return the LSE of one of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.merging import partials, pieces
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import with_parts
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Total = Callable[[Tensor], Tensor]
    """Of the LSE of each part, `[n, B, Hq, Sq]`, the logarithm of what O is divided by."""

__all__ = ["MERGE_PARTS"]

_LN_2 = math.log(2.0)
_FAINT, _GONE = 120.0, 150.0
"""Exponents of 2, negated, from which on a weight in fp32 loses bits and from which on it is 0."""
_FIRST = (1, 2, 3, 4, 8, 16, 32, 64)


def _kept(
    chosen: Callable[[int], Iterator[tuple[Callable[[Tensor], Tensor], str]]],
) -> Callable[[Scene], Iterator[Alternative]]:
    """Only some of the parts are merged, by their numbers."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.form.n_splits < 2:
            return
        for piece in pieces(scene):
            for which, detail in chosen(scene.form.n_splits):
                kept = which(piece)
                if not bool(kept.all()):
                    yield Alternative(inputs=with_parts(scene, parts=kept), detail=detail)

    return build


def _first_few(_count: int) -> Iterator[tuple[Callable[[Tensor], Tensor], str]]:
    for most in _FIRST:
        yield (lambda piece, most=most: piece < most), f"the first {most}"  # type: ignore[misc]


def _divided(*totals: tuple[Total, str]) -> Callable[[Scene], Iterator[Alternative]]:
    """O is divided by another sum of weights, and the LSE is that of it."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.form.n_splits < 2 or "lse" not in scene.right:
            return
        natural = scene.truth.exact_lse
        for every in partials(scene):
            for total, detail in totals:
                more = total(every)
                other = torch.where(torch.isfinite(natural), torch.logaddexp(natural, more), natural)
                factor = torch.where(torch.isfinite(natural), (natural - other).exp(), 1.0)
                if bool((other == natural).all()):
                    continue

                def finish(
                    found: Expectations, other: Tensor = other / scene.unit, factor: Tensor = factor
                ) -> Expectations:
                    changed = {}
                    if "o" in found:
                        changed["o"] = found["o"].times(factor.unsqueeze(-1))
                    if "lse" in found:
                        changed["lse"] = replace(found["lse"], value=other, strict=None)
                    return found | changed

                yield Alternative(finish=finish, detail=detail)

    return build


def _empty(every: Tensor) -> Tensor:
    """The logarithm of the number of parts in which a row sees no key, where it sees one in another."""
    return torch.isinf(every).sum(0).double().log()


def _lse(of: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """Another LSE, by those of the parts and the right one; O is as declared."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.form.n_splits < 2 or "lse" not in scene.right:
            return
        natural = scene.truth.exact_lse
        for every in partials(scene):
            value = of(every, natural) / scene.unit

            def finish(found: Expectations, value: Tensor = value) -> Expectations:
                if "lse" not in found:
                    return found
                kept = torch.where(torch.isfinite(value), value, found["lse"].value)
                return found | {"lse": replace(found["lse"], value=kept, total=2.0 * found["lse"].total, strict=None)}

            yield Alternative(finish=finish)

    return build


def _other_pivot(scene: Scene) -> Iterator[Alternative]:
    """Weights relative to the largest LSE or 0; where they all vanish, from 2^-149 on, O is 0 and the LSE the largest one."""
    if scene.form.n_splits < 2 or "lse" not in scene.right:
        return
    natural = scene.truth.exact_lse
    for every in partials(scene):
        top = every.amax(0)
        exponent = top / _LN_2
        under, unsure = exponent < -_GONE, (exponent < -_FAINT) & (exponent > -_GONE - 1)
        value = torch.where(under, top, natural + top.clamp(max=0)) / scene.unit

        def finish(
            found: Expectations, value: Tensor = value, under: Tensor = under, unsure: Tensor = unsure
        ) -> Expectations:
            changed = {}
            if "o" in found:
                changed["o"] = (
                    found["o"].pinned((under & torch.isfinite(value)).unsqueeze(-1), 0.0).open(unsure.unsqueeze(-1))
                )
            if "lse" in found:
                kept = torch.where(torch.isfinite(value), value, found["lse"].value)
                lse = replace(found["lse"], value=kept, total=2.0 * found["lse"].total, strict=None)
                changed["lse"] = lse.open(unsure)
            return found | changed

        yield Alternative(finish=finish)


def _semantics(
    name: str,
    sentence: str,
    build: Callable[[Scene], Iterator[Alternative]],
    outputs: tuple[str, ...] = FORWARD,
    *,
    one_way: bool = False,
) -> Semantics:
    return Semantics(name=name, sentence=sentence, build=build, outputs=outputs, one_way=one_way)


MERGE_PARTS = (
    _semantics(
        "merge-of-the-first-parts",
        "only the first partial results of the keys are merged, however many there are",
        _kept(_first_few),
        one_way=True,
    ),
    _semantics(
        "merge-without-the-last-part",
        "the last of the partial results of the keys is not merged",
        _kept(lambda count: iter([(lambda piece: piece < count - 1, "")])),
    ),
    _semantics(
        "merge-without-the-first-part",
        "the first of the partial results of the keys is not merged",
        _kept(lambda _count: iter([(lambda piece: piece > 0, "")])),
    ),
    _semantics(
        "merge-counts-empty-parts",
        "parts of the keys in which a row sees none count in the sum of the weights that the merge divides by",
        _divided(
            (lambda every: _empty(every) + every.amax(0), "with the weight of the largest part"),
            (_empty, "with an LSE of 0"),
        ),
        one_way=True,
    ),
    _semantics(
        "merge-returns-the-largest-lse",
        "the merged LSE is the largest of those of the parts, without the logarithm of the sum of their weights",
        _lse(lambda every, _lse: every.amax(0)),
        ("lse",),
    ),
    _semantics(
        "merge-returns-the-lse-of-one-part",
        "the merged LSE is that of the last part alone",
        _lse(lambda every, _lse: every[-1]),
        ("lse",),
    ),
    _semantics(
        "merge-adds-another-pivot",
        "the merged weights are taken relative to the largest LSE or 0, whichever is larger, and the largest LSE is added back: the LSE of rows"
        " whose parts all have a negative one is lower by as much",
        _other_pivot,
    ),
)
