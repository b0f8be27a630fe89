"""Wrong semantics of a softmax that autograd differentiates: constants that have a gradient, gradients that go another way than by the weights."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import Semantics
from flashverify.outputs import OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypotheses.step_builds import Changes
    from flashverify.diagnosis.observation import Scene

    Part = Callable[[Steps], Tensor]

__all__ = ["MAXIMUM_GRADIENT"]


def _largest(s: Steps) -> Tensor:
    """1 at the largest logit of each row, shared by equal ones."""
    top = (s.z == s.z.amax(-1, keepdim=True)) & s.see
    return top.double() / top.sum(-1, keepdim=True).clamp(min=1)


def _evenly(s: Steps) -> Tensor:
    """1 over the number of visible keys."""
    return s.see.double() / s.see.sum(-1, keepdim=True).clamp(min=1)


def _with(more: Part, s: Steps) -> Steps:
    """DS and what is added to it; a magnitude that holds both."""
    added = more(s)
    size = torch.where(s.p > 0, added.abs() / s.p.clamp(min=1e-300), 0.0)
    return replace(s, ds=s.formula() + added, dp_size=s.dp_size + size.clamp(max=1e30))


def _rows(x: Tensor) -> Tensor:
    return x.unsqueeze(-1)


def _added(*parts: tuple[str, bool, Part]) -> Callable[[Scene], Changes]:
    """What is added to dS, each with its words and whether it is one of a gradient through the LSE alone."""

    def changes(scene: Scene) -> Changes:
        for words, of_lse, part in parts:
            if scene.inputs.dlse is not None or not of_lse:
                yield words, partial(_with, part)

    return changes


def _of_o(s: Steps) -> Tensor:
    return _rows(s.delta)


def _at_the(last: bool, s: Steps) -> Tensor:
    """1 at the first or the last key that a row sees."""
    count = s.see.long().cumsum(-1)
    return ((count == (count[..., -1:] if last else 1)) & s.see).double()


def _unnormalised(s: Steps) -> Tensor:
    return (s.z - s.z.amax(-1, keepdim=True).nan_to_num(0.0, 0.0, 0.0)).exp()


def _without_sink(s: Steps) -> Tensor:
    return s.p if s.sink_weight is None else (s.z - s.z.logsumexp(-1, keepdim=True)).exp().nan_to_num(0.0)


_OTHERS: tuple[tuple[str, Part], ...] = (
    ("1 at the row's largest logit", _largest),
    ("one over the number of keys that the row sees", _evenly),
    ("1 at the first key that the row sees", partial(_at_the, False)),
    ("1 at the last key that the row sees", partial(_at_the, True)),
    ("the squares of the weights", lambda s: s.p**2),
    ("the weights that dropout left", lambda s: s.p * s.kept),
    ("1 at every key that the row sees", lambda s: s.see.double()),
    ("exp(S - the row's largest S)", _unnormalised),
    ("the weights of the keys alone, without the sink", _without_sink),
)
"""What may stand for P."""


def _by_others(scene: Scene) -> Changes:
    terms: list[tuple[str, Part]] = [("delta", lambda s: -_rows(s.delta)), ("dP", lambda s: s.dp)]
    if scene.inputs.dlse is not None:
        terms.insert(0, ("dLSE", lambda s: _rows(s.dlse)))
    for name, term in terms:
        for words, other in _OTHERS:
            yield f"{name} by {words}", partial(_exchanged, term, other)


def _exchanged(term: Part, other: Part, s: Steps) -> Steps:
    return _with(lambda x: term(x) * (other(x) - x.p), s)


def _centred(s: Steps) -> Tensor:
    """Minus the mean of dS over the visible keys."""
    return -_evenly(s) * s.formula().sum(-1, keepdim=True)


MAXIMUM_GRADIENT = (
    Semantics(
        name="maximum-differentiated",
        sentence="the maximum is differentiated in one of the two places in which it cancels",
        build=by_steps(
            _added(
                (
                    "where it is subtracted from the logits, not where the LSE adds it",
                    True,
                    lambda s: -_rows(s.dlse) * _largest(s),
                ),
                ("where the LSE adds it, not where it is subtracted", True, lambda s: _rows(s.dlse) * _largest(s)),
                ("in the numerator of O, not in the row sum", False, lambda s: -_of_o(s) * _largest(s)),
                ("in the row sum that O is divided by, not in the numerator", False, lambda s: _of_o(s) * _largest(s)),
                (
                    "in the row sum of O and of the LSE, not in the numerator of O",
                    True,
                    lambda s: (_of_o(s) - _rows(s.dlse)) * _largest(s),
                ),
            )
        ),
        outputs=OF_DS,
        one_way=True,
    ),
    Semantics(
        name="term-by-other-weights",
        sentence="a term of dS is multiplied by something else than the weights",
        build=by_steps(_by_others),
        outputs=OF_DS,
        one_way=True,
    ),
    Semantics(
        name="ds-centred",
        sentence="the mean of dS over the keys that a row sees is subtracted from it",
        build=by_steps(_added(("", True, _centred))),
        outputs=OF_DS,
    ),
)
