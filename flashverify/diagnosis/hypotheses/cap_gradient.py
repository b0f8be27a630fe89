"""Wrong semantics of the derivative of a softcap."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Change, Steps
    from flashverify.diagnosis.observation import Scene

__all__ = ["CAP_GRADIENT"]

_LN2 = 0.6931471805599453


def _ratio(steps: Steps, cap: float) -> Tensor:
    """The capped logit over the cap, tanh(x / cap)."""
    return torch.tanh(steps.x / cap)


def _slopes(*slopes: tuple[str, Callable[[Steps, float], Tensor]]) -> Callable[[Scene], Iterator[tuple[str, Change]]]:
    """Other derivatives, each a function of the steps and the cap."""

    def changes(scene: Scene) -> Iterator[tuple[str, Change]]:
        if cap := scene.inputs.softcap:
            for detail, slope in slopes:
                yield detail, partial(_with, slope, cap)

    return changes


def _with(slope: Callable[[Steps, float], Tensor], cap: float, steps: Steps) -> Steps:
    return replace(steps, slope=slope(steps, cap))


def _in_bias(scene: Scene) -> Iterator[tuple[str, Change]]:
    if scene.inputs.softcap and (scene.inputs.bias_shape is not None or scene.inputs.bucket_count is not None):
        yield "", lambda steps: replace(steps, dbias_ds=steps.formula() * steps.slope)


def _in_dv(scene: Scene) -> Iterator[tuple[str, Change]]:
    if scene.inputs.softcap:
        yield "", lambda s: replace(s, p_dv=s.p_dv * s.slope)


def _before_store(scene: Scene) -> Iterator[tuple[str, Change]]:
    for detail, _ in _in_bias(scene):
        yield detail, lambda s: replace(s, slope=s.slope**2, dbias_ds=s.formula() * s.slope)


def _after_bias(steps: Steps, cap: float) -> Tensor:
    """Of the logit with what is added to it behind the cap."""
    return 1 - (steps.z.where(steps.see, 0.0) / cap) ** 2


CAP_GRADIENT = (
    Semantics(
        name="softcap-slope-twice",
        sentence="the derivative of the softcap is applied twice",
        build=by_steps(_slopes(("", lambda s, cap: (1 - _ratio(s, cap) ** 2) ** 2))),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-in-dv",
        sentence="the weights of dV are multiplied by the derivative of the softcap",
        build=by_steps(_in_dv),
        outputs=("dv",),
    ),
    Semantics(
        name="softcap-slope-of-capped",
        sentence="the derivative of the softcap is taken at the capped logit, not at the logit before it",
        build=by_steps(
            _slopes(
                ("", lambda s, cap: 1 - torch.tanh(_ratio(s, cap)) ** 2),
                ("with the bias added", lambda s, cap: 1 - torch.tanh(s.z.where(s.see, 0.0) / cap) ** 2),
            )
        ),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-not-divided",
        sentence="the derivative of the softcap is 1 - y^2 of the capped logit y, which is not divided by the cap",
        build=by_steps(
            _slopes(
                ("", lambda s, cap: 1 - (cap * _ratio(s, cap)) ** 2),
                ("of the logit", lambda s, _cap: 1 - torch.tanh(s.x) ** 2),
            )
        ),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-not-squared",
        sentence="the derivative of the softcap is 1 - tanh, not 1 - tanh^2",
        build=by_steps(
            _slopes(("", lambda s, cap: 1 - _ratio(s, cap)), ("of its size", lambda s, cap: 1 - _ratio(s, cap).abs()))
        ),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-sign",
        sentence="the derivative of the softcap has a wrong sign: 1 + tanh^2, or tanh^2 - 1",
        build=by_steps(
            _slopes(
                ("1 + tanh^2", lambda s, cap: 1 + _ratio(s, cap) ** 2),
                ("tanh^2 - 1", lambda s, cap: _ratio(s, cap) ** 2 - 1),
                ("tanh^2", lambda s, cap: _ratio(s, cap) ** 2),
            )
        ),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-times-cap",
        sentence="the derivative of the softcap is multiplied or divided by the cap",
        build=by_steps(
            _slopes(
                ("multiplied", lambda s, cap: cap * (1 - _ratio(s, cap) ** 2)),
                ("divided", lambda s, cap: (1 - _ratio(s, cap) ** 2) / cap),
            )
        ),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-of-products",
        sentence="the derivative of the softcap is taken of the products before their scale",
        build=by_steps(_slopes(("", lambda s, cap: 1 - torch.tanh((s.x / s.scale if s.scale else s.x) / cap) ** 2))),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-after-bias",
        sentence="the derivative of the softcap is taken of a logit to which the bias is added",
        build=by_steps(_slopes(("", _after_bias))),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-in-another-base",
        sentence="the derivative of the softcap is taken of logits in another base",
        build=by_steps(
            _slopes(
                ("", lambda s, cap: 1 - torch.tanh(s.x / _LN2 / cap) ** 2),
                ("", lambda s, cap: 1 - torch.tanh(s.x * _LN2 / cap) ** 2),
            )
        ),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-slope-in-bias-gradient",
        sentence="the gradient of a bias that is added behind the softcap is multiplied by the softcap's derivative",
        build=by_steps(_in_bias),
        outputs=("dbias", "drelative_bias"),
    ),
    Semantics(
        name="softcap-slope-before-bias-gradient",
        sentence="the gradient of a logit is multiplied by the softcap's derivative before that of a bias is taken of it, and again behind",
        build=by_steps(_before_store),
        outputs=("dq", "dk", "dbias", "drelative_bias"),
    ),
)
