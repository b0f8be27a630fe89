"""Wrong semantics of the backward's formulas: of dS, of the operands of its products, of the weights that it computes again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits, modified
from flashverify.diagnosis.hypotheses.step_builds import by_steps, has_gradients
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.outputs import OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypotheses.step_builds import Changes
    from flashverify.diagnosis.observation import Scene

__all__ = ["SOFTMAX_GRADIENT"]

_LOG2E = 1.4426950408889634
_OF_WEIGHTS = (*OF_DS, "dv", "dsink")


def _always(*changes: tuple[str, Callable[[Steps], Steps]]) -> Callable[[Scene], Changes]:
    return lambda _scene: iter(changes)


def _row(steps: Steps) -> Tensor:
    return (steps.dlse - steps.delta).unsqueeze(-1)


def _dp_of_o(steps: Steps) -> Steps:
    dp = (steps.o @ steps.v.mT) * steps.kept
    return replace(steps, dp=dp, dp_size=(steps.o.abs() @ steps.v.abs().mT) * steps.kept)


def _of_dp_alone(scene: Scene) -> Changes:
    """Without a gradient through the LSE it is what lacks delta alone: of a kernel that subtracts both at once that may be either."""
    if scene.inputs.dlse is not None or scene.form.stored_delta == "minus_dlse":
        yield "", lambda s: replace(s, ds=s.p * s.dp)


def _exchanged(scene: Scene) -> Changes:
    """Operands with as many channels in each other's place."""
    if scene.case.dim_qk == scene.case.dim_v:
        yield "V in place of K in dQ", lambda s: replace(s, dq_keys=s.v)
        yield "dO in place of Q in dK", lambda s: replace(s, dk_rows=s.do)
        yield "Q in place of dO in dV", lambda s: replace(s, dv_rows=s.q)
        yield "K in place of V in dP", lambda s: replace(s, dp=(s.do @ s.k.mT) * s.kept)


def _chunks(dim: int, other: int) -> Iterator[tuple[str, slice]]:
    """The first or the last channels of `dim`, by usual sizes; the first ones by the `other` dim too, in multiples of 8."""
    for size in TILES:
        if size < dim:
            last = (dim - 1) // size * size
            yield f"the first {size} of them", slice(0, size)
            yield f"from {last} on", slice(last, dim)
    if (size := -(-other // 8) * 8) < dim:
        yield f"the first {size} of them, as many as the other tensors have", slice(0, size)


def _dp_of_channels(scene: Scene) -> Changes:
    def part(channels: slice, s: Steps) -> Steps:
        return replace(s, dp=(s.do[..., channels] @ s.v[..., channels].mT) * s.kept)

    for detail, channels in _chunks(scene.case.dim_v, scene.case.dim_qk):
        yield detail, partial(part, channels)


def _logits_of_channels(scene: Scene) -> Changes:
    """The backward's own logits; the weights are exp(S - LSE) with the right LSE."""
    i = scene.inputs

    def part(channels: slice, s: Steps) -> Steps:
        x = (s.q[..., channels] @ s.k[..., channels].mT) * s.scale
        p = (modified(x, i, i.biases) - s.lse.unsqueeze(-1)).exp().where(s.see, 0.0)
        slope = 1 - torch.tanh(x / i.softcap) ** 2 if i.softcap else s.slope
        return replace(s, p=p, p_dv=p, slope=slope)

    for detail, channels in _chunks(scene.case.dim_qk, scene.case.dim_v):
        yield detail, partial(part, channels)


def _lse(change: Callable[[Scene, Tensor], Tensor | None]) -> Callable[[Scene], Iterator[Alternative]]:
    """Another number `[B, Hq, Sq]` in place of the natural LSE; where it is not finite the right one is kept."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.lse is None or not has_gradients(scene):
            return
        other = change(scene, scene.lse)
        if other is not None:
            kept = torch.where(torch.isfinite(other), other, scene.lse)
            yield Alternative(given=lambda o, _lse: (o, kept))

    return build


def _without_sink(scene: Scene, lse: Tensor) -> Tensor | None:
    if scene.inputs.sink is None:
        return None
    return lse + logits(scene.inputs).logsumexp(-1) - scene.truth.exact_lse


def _again(scene: Scene) -> Changes:
    """P over its own sum; where that is below every normal number of fp32 the weights are 0."""
    if scene.inputs.sink is None:
        return

    def normalised(s: Steps) -> Steps:
        total = s.p.sum(-1, keepdim=True)
        p = torch.where(total < 1e-37, 0.0, s.p / total.clamp(min=1e-300))
        p = torch.where(
            (total > 1e-46) & (total < 1e-28) & s.see, torch.nan, p
        )  # what is left there is a matter of rounding
        return replace(s, p=p, p_dv=p)

    yield "", normalised


SOFTMAX_GRADIENT = (
    Semantics(
        name="ds-without-weights",
        sentence="the gradient of a logit is dP - delta: it is not multiplied by P",
        build=by_steps(_always(("", lambda s: replace(s, ds=(s.dp + _row(s)).where(s.see, 0.0))))),
        outputs=OF_DS,
    ),
    Semantics(
        name="ds-weighted-twice",
        sentence="the gradient of a logit is multiplied by P twice",
        build=by_steps(_always(("", lambda s: replace(s, ds=s.p * s.formula())))),
        outputs=OF_DS,
    ),
    Semantics(
        name="softmax-gradient-diagonal",
        sentence="the gradient of a logit is P (1 - P) dP: the other keys of the row are left out",
        build=by_steps(
            _always(
                ("", lambda s: replace(s, ds=s.p * (1 - s.p) * s.dp)),
                ("", lambda s: replace(s, ds=s.p * (1 - s.p) * (s.dp + _row(s)))),
            )
        ),
        outputs=OF_DS,
    ),
    Semantics(
        name="ds-is-p",
        sentence="dQ or dK is made of the weights P in place of dS",
        build=by_steps(_always(("", lambda s: replace(s, ds=s.p)), ("", lambda s: replace(s, ds=s.p * s.kept)))),
        outputs=OF_DS,
    ),
    Semantics(
        name="ds-is-dp",
        sentence="the gradient of a logit is P dP: it lacks delta and the gradient through the LSE",
        build=by_steps(_of_dp_alone),
        outputs=OF_DS,
    ),
    Semantics(
        name="dv-of-ds",
        sentence="dV is made of dS in place of P",
        build=by_steps(_always(("", lambda s: replace(s, p_dv=s.formula(), kept=torch.ones_like(s.kept))))),
        outputs=("dv",),
    ),
    Semantics(
        name="dv-of-o",
        sentence="dV is made of O in place of dO",
        build=by_steps(_always(("", lambda s: replace(s, dv_rows=s.o)))),
        outputs=("dv",),
    ),
    Semantics(
        name="dp-of-o",
        sentence="dP is made of O in place of dO",
        build=by_steps(_always(("", _dp_of_o))),
        outputs=OF_DS,
    ),
    Semantics(
        name="backward-operand-exchanged",
        sentence="a product of the backward has another operand in the place of its own",
        build=by_steps(_exchanged),
        outputs=(*OF_DS, "dv"),
    ),
    Semantics(
        name="dp-of-some-channels",
        sentence="dP is summed over some of the channels only",
        build=by_steps(_dp_of_channels),
        outputs=OF_DS,
    ),
    Semantics(
        name="backward-logits-of-some-channels",
        sentence="the backward's logits are summed over some of the channels only",
        build=by_steps(_logits_of_channels),
        outputs=(*OF_DS, "dv"),
    ),
    Semantics(
        name="backward-not-normalised",
        sentence="the backward's weights are not normalised: the LSE lacks the logarithm of the row sum",
        build=_lse(lambda scene, _lse: logits(scene.inputs).amax(-1)),
        outputs=_OF_WEIGHTS,
    ),
    Semantics(
        name="backward-without-lse",
        sentence="the backward's weights are exp(S): the LSE is not subtracted",
        build=_lse(lambda _scene, lse: torch.zeros_like(lse)),
        outputs=_OF_WEIGHTS,
    ),
    Semantics(
        name="backward-lse-in-base-2",
        sentence="the backward takes an LSE of base 2 for a natural one",
        build=_lse(lambda _scene, lse: lse * _LOG2E),
        outputs=_OF_WEIGHTS,
    ),
    Semantics(
        name="backward-lse-without-sink",
        sentence="the sink is left out of the LSE that the backward reads",
        build=_lse(_without_sink),
        outputs=_OF_WEIGHTS,
    ),
    Semantics(
        name="backward-weights-without-sink",
        sentence="the backward divides its weights by their sum over the keys alone: the sink has no share in it",
        build=by_steps(_again),
        outputs=(*OF_DS, "dv"),
    ),
    Semantics(
        name="backward-lse-of-previous-row",
        sentence="the backward reads the LSE of the row before",
        build=_lse(lambda _scene, lse: lse.roll(1, 2) if lse.shape[2] > 1 else None),
        outputs=_OF_WEIGHTS,
    ),
    Semantics(
        name="backward-lse-of-first-row",
        sentence="the backward reads the LSE of the first row",
        build=_lse(lambda _scene, lse: lse[:, :, :1].expand_as(lse) if lse.shape[2] > 1 else None),
        outputs=_OF_WEIGHTS,
    ),
)
