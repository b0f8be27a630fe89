"""dS whose terms, that of dP, that of delta and that of dLSE, have other weights than P, or not all the derivative of the softcap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.formulas import Columns, Formula
from flashverify.diagnosis.readings.backward.numbers import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

__all__ = ["WeighedTerms", "weighed_terms"]

_NAMES = ("dP", "delta", "dLSE")


class _Weight(NamedTuple):
    """What a term is multiplied by.

    Attributes:
        symbol: before the name of the term; empty for nothing.
        of: `[B, Hq, Sq, Sk]`, 0 at hidden pairs; None where the case has none.
    """

    symbol: str
    of: Callable[[Scene, Steps], Tensor | None]


_P = _Weight("P", lambda _scene, s: s.p)
_OTHERS = (
    _Weight("", lambda _scene, s: s.see.double()),
    _Weight("P^2", lambda _scene, s: s.p**2),
    _Weight("(1 - P)", lambda _scene, s: (1 - s.p) * s.see),
    _Weight("P (1 - P)", lambda _scene, s: s.p * (1 - s.p)),
    _Weight("sqrt(P)", lambda _scene, s: s.p.sqrt()),
    _Weight("P drop", lambda scene, s: s.p * s.kept if scene.case.dropout else None),
    _Weight("P where it is kept, ", lambda scene, s: s.p * (s.kept > 0) if scene.case.dropout else None),
    _Weight("drop", lambda scene, s: s.kept * s.see if scene.case.dropout else None),
    _Weight("1 / (the keys that the row sees) ", lambda _scene, s: s.see / s.see.sum(-1, keepdim=True).clamp(min=1)),
    _Weight("P^T", lambda _scene, s: s.p.mT if s.p.shape[2] == s.p.shape[3] else None),
)
_CAPPED = _Weight("P cap'", lambda _scene, s: s.p * s.slope)
_OF_CAP = (_CAPPED, _P, _Weight("P cap'^2", lambda _scene, s: s.p * s.slope**2))
"""Weights with the derivative of the softcap once, not at all and twice."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeighedTerms(Formula):
    """A formula of dS in which each term has weights of its own.

    Attributes:
        of: the weights of dP, delta and dLSE.
        capped: whether the weights alone have the derivative of the softcap, that does not multiply the sum of the terms then.
    """

    of: tuple[_Weight, _Weight, _Weight] = (_P, _P, _P)
    capped: bool = False

    @property
    def cost(self) -> float:
        """How far it is from what is declared."""
        return len({each.symbol for each in self.of if each is not self._own}) + super(WeighedTerms, self).cost

    @property
    def _own(self) -> _Weight:
        """The declared weight of every term."""
        return _CAPPED if self.capped and self.output != "dbias" else _P

    def columns(
        self,
        scene: Scene,
        s: Steps,
        at: Tensor | None = None,
        picks: dict[str, Tensor] | None = None,  # noqa: ARG002
    ) -> Columns | None:
        """The terms on a case, at the pairs `at`, or at all; None where the case has not such weights."""
        weights = [x for x in (each.of(scene, s) for each in self.of) if x is not None]
        if len(weights) < len(self.of):
            return None

        cells = None if at is None else at.nonzero(as_tuple=True)

        def pick(x: Tensor) -> Tensor:
            return x if at is None or cells is None else x.expand(at.shape)[cells]

        row, dlse = s.delta.unsqueeze(-1), s.dlse.unsqueeze(-1)
        terms = ((s.dp, s.dp_size), (-row, s.delta_size.unsqueeze(-1)), (dlse, dlse.abs()))
        values = [pick(w * x) for w, (x, _) in zip(weights, terms, strict=True)]
        sizes = [pick(torch.maximum(w.abs(), s.p) * x) for w, (_, x) in zip(weights, terms, strict=True)]
        slope = torch.ones_like(s.p) if self.capped or self.output == "dbias" else s.slope
        return Columns(values, sizes, pick(slope))

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where the case has not what it is about."""
        if scene.inputs.do is None or not scene.case.seq_q or not scene.case.seq_k:
            return None

        def steps(s: Steps) -> Steps:
            columns = self.columns(scene, s)
            if columns is None:
                return s
            total = torch.stack([n.of(scene) * x for n, x in zip(self.numbers, columns.values, strict=True)]).sum(0)
            weights = [x for x in (each.of(scene, s) for each in self.of) if x is not None]
            size = torch.maximum(torch.stack(weights).abs().amax(0), s.p)
            if self.output == "dbias":
                return replace(s, p=size, ds=s.formula(), dbias_ds=total)
            return replace(s, p=size, ds=total, slope=torch.ones_like(s.slope) if self.capped else s.slope)

        return Alternative(steps=steps)

    def differences(self) -> list[str]:
        """What is not as declared, a sentence each without its full stop."""
        terms = [x for x in zip(_NAMES, self.of, strict=True) if x[1] is not self._own]
        if self.capped:
            often = dict(zip((each.symbol for each in _OF_CAP), ("", "not ", "twice "), strict=True))
            found = [
                f"{name} is {often[each.symbol]}multiplied by cap', the derivative of the softcap"
                for name, each in terms
            ]
            return found + Formula.differences(self)
        found = [
            f"{name} is multiplied by {each.symbol.strip(', ')}, not by P"
            if each.symbol
            else f"{name} is not multiplied by P"
            for name, each in terms
        ]
        return found + Formula.differences(self)

    def text(self, dlse: bool) -> str:
        """The formula in letters, with dLSE or without."""
        terms = ""
        for sign, name, number, weight in zip("+-+", _NAMES, self.numbers, self.of, strict=True):
            if number.words == "0" or (name == "dLSE" and not dlse):
                continue
            times = "" if number.words == "1" else f"({number.words}) "
            terms += (f" {sign} " if terms else "-" if sign == "-" else "") + f"{times}{weight.symbol} {name}".strip()
        return terms or "0"


def weighed_terms(output: str, scene: Scene, s: Steps) -> Iterator[WeighedTerms]:
    """Formulas before their numbers are known, for an output that is made of dS."""
    if output == "dv":
        return
    there = [_P, *(each for each in _OTHERS if each.of(scene, s) is not None)]
    for first, second in product(there, repeat=2):
        thirds = dict.fromkeys((second, first)) if scene.inputs.dlse is not None else (second,)
        for third in thirds:
            if not first is second is third is _P:
                yield WeighedTerms(output=output, numbers=(ONE,) * 3, of=(first, second, third))
    for first, second in product(_OF_CAP, repeat=2) if scene.inputs.softcap else ():
        for third in _OF_CAP if scene.inputs.dlse is not None else dict.fromkeys((second, first)):
            if not first is second is third:  # of the same ones there are variants of the derivative
                yield WeighedTerms(output=output, numbers=(ONE,) * 3, of=(first, second, third), capped=True)
