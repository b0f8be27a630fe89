"""The LSE in effect beside the weights in effect, in words: that of another row sum, other parts of it, or wrong in some rows alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.readings.said import Said
from flashverify.diagnosis.readings.weights.lse_parts import lse_of_parts
from flashverify.diagnosis.readings.weights.masses import masses, sum_of
from flashverify.diagnosis.readings.weights.means import lse_term
from flashverify.diagnosis.readings.weights.models import GONE
from flashverify.diagnosis.readings.weights.row_masses import which_rows

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect
    from flashverify.diagnosis.readings.weights.models import Model

__all__ = ["Row", "lse_words"]

_ONE = 1e-3
"""Relative distance at which numbers are the same."""
_PART = 0.01
"""Factor of the largest logit in an LSE below which it is none."""
_FEWEST = 6
"""Rows that are right, and rows that are wrong, from which on it is said which they are."""


class Row(NamedTuple):
    """A case under a model.

    Attributes:
        model: which one.
        effect: the case.
        logits: of the model, `[B, Hq, Sq, Sk]`.
        shift: what is added to them, `[B, Hq, Sq]`: minus the logarithm of what the weights are divided by.
    """

    model: Model
    effect: Effect
    logits: Tensor
    shift: Tensor

    @property
    def weighs(self) -> Tensor:
        """Bool `[B, Hq, Sq]`: rows of which some key has a weight under the model."""
        return (self.logits > -math.inf).any(-1)


def lse_words(rows: list[Row]) -> list[Said]:
    """Whose the LSE is, where it is not that of the row sum."""
    having = [row for row in rows if row.effect.lse is not None]
    if not having or all(row.effect.lse_near(-row.shift, (row.shift > GONE) & row.weighs) for row in having):
        return []
    cases = len(having)
    if all(row.effect.lse_near(row.effect.scene.truth.exact_lse) for row in having):
        return [Said("the LSE is as declared", cases)]
    for words, of in masses(having[0].effect):
        if all(row.effect.lse_near(of(row.effect, row.logits)) for row in having):
            return [
                Said(
                    f"the LSE is that of a row sum that {words}" if words else "the LSE is that of these weights", cases
                )
            ]
    if (term := lse_term([(row.effect, -row.shift) for row in having])) is not None:
        return [term]
    if (found := _linear(having)) is not None:
        return [found]
    if parts := lse_of_parts([(row.effect, row.logits) for row in having]):
        return [Said(f"the LSE {parts}", cases)]
    if (some := _in_some_rows(having)) is not None:
        return [some]
    far = all(row.effect.lse_far(-row.shift) and row.effect.lse_far(row.effect.scene.truth.exact_lse) for row in having)
    return [Said("the LSE is that of other weights than O's", cases, part=True)] if far else []


def _linear(having: list[Row]) -> Said | None:
    """The LSE as a combination of the row's largest logit, the logarithm of the row sum relative to it, and a number."""
    features, values = [], []
    for row in having:
        some, top = ~row.effect.open_rows, row.logits.amax(-1)
        assert row.effect.lse is not None
        features.append(torch.stack([top, sum_of(row.effect, row.logits) - top, torch.ones_like(top)], -1)[some])
        values.append(row.effect.lse[some])
    x, y = torch.cat(features), torch.cat(values)
    if len(y) < 8 or not bool(torch.isfinite(y).all()) or int(torch.linalg.matrix_rank(x)) < 3:
        return None
    found = torch.linalg.lstsq(x, y.unsqueeze(-1)).solution.squeeze(-1)
    if float((x @ found - y).abs().max()) > 1e-4 * (1 + float(y.abs().max())):
        return None
    a, b, c = (round(float(v), 4) for v in found)
    if abs(a) < _PART or max(abs(a - 1.0), abs(b - 1.0), abs(c)) <= _ONE:
        return None  # the logits hardly differ, or the LSE is as declared but for errors of the logits
    constant = f" {'+' if c > 0 else '-'} {abs(c):g}" if abs(c) > _ONE else ""
    words = f"{a:g} times the row's largest logit + {b:g} times the logarithm of the row sum relative to it{constant}"
    return Said(f"the LSE is {words}", len(having))


def _in_some_rows(having: list[Row]) -> Said | None:
    """Which rows have a wrong LSE, and what it is there; None where nothing known says which."""
    wrong, right = [], []
    for row in having:
        near = row.effect.rows_with_lse(-row.shift)
        asked = ~row.effect.open_rows & row.weighs & (row.shift > GONE)
        wrong.append(asked & ~near)
        right.append(asked & near)
    if min(sum(int(x.sum()) for x in found) for found in (wrong, right)) < _FEWEST:
        return None
    for words, which in which_rows():
        told = [which(row.effect, row.logits).expand(row.shift.shape) for row in having]
        if all(torch.equal(x & (w | r), w) for x, w, r in zip(told, wrong, right, strict=True)):
            factor = _factor(having, wrong)
            return Said(f"the LSE is {factor} in rows {words}; that of the others is as declared", len(having))
    return None


def _factor(having: list[Row], wrong: list[Tensor]) -> str:
    """What the LSE is of rows that have a wrong one."""
    got = torch.cat([row.effect.lse[where] for row, where in zip(having, wrong, strict=True)])  # type: ignore[index]
    declared = torch.cat([-row.shift[where] for row, where in zip(having, wrong, strict=True)])
    ratio = got / declared
    middle = float(ratio.median())
    if bool(torch.isfinite(ratio).all()) and bool(((ratio - middle).abs() <= _ONE * (1 + abs(middle))).all()):
        return f"{middle:.4g} times what it should be"
    gone = bool((got == -math.inf).all())
    return "-inf" if gone else "another one"
