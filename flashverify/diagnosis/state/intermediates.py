"""What a kernel computes on its way and may keep: what its backward starts from, the steps of the backward, the means of K and V."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.hypothesis import Alternative, Expectations
from flashverify.outputs import BACKWARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.state.calling import Called

__all__ = ["INTERMEDIATES", "Intermediate"]

_ROUNDINGS = 16.0
"""Roundings to fp32 that a mean and a product with it are given, for each term."""


@dataclass(frozen=True, slots=True)
class Intermediate:
    """Something that is computed on the way.

    Attributes:
        name: in the name of a diagnosis.
        sentence: of the diagnosis, without a full stop.
        expects: what the later call then returns; None where it cannot be told.
    """

    name: str
    sentence: str
    expects: Callable[[Any, Called], Expectations | None]


def _in_backward(name: str, words: str, change: Callable[[Steps, Steps], Steps]) -> Intermediate:
    """Something of the steps of the backward."""

    def expects(_: Any, called: Called) -> Expectations | None:
        later, earlier = called.later, called.earlier
        if not _comparable(later, earlier):
            return None
        kept = _steps(earlier)
        return later.expect(Alternative(steps=lambda steps: change(steps, kept)), frozenset(BACKWARD))

    sentence = f"the backward of the second call computes with {words} of the first: it is kept from call to call"
    return Intermediate(name, sentence, expects)


def _given(name: str, words: str, choose: Callable[[Tensor, Tensor, Scene], tuple[Tensor, Tensor]]) -> Intermediate:
    """The O or the LSE that the backward starts from."""

    def expects(_: Any, called: Called) -> Expectations | None:
        later, earlier = called.later, called.earlier
        if not _comparable(later, earlier) or later.o is None or earlier.o is None:
            return None
        return later.expect(Alternative(given=lambda o, lse: choose(o, lse, earlier)), frozenset(BACKWARD))

    sentence = f"the backward of the second call reads {words} of the first: it is kept from call to call"
    return Intermediate(name, sentence, expects)


def _comparable(later: Scene, earlier: Scene) -> bool:
    """Whether both have a backward and equal shapes."""
    shapes = [(s.inputs.q.shape, s.inputs.k.shape, s.inputs.v.shape) for s in (later, earlier)]
    return shapes[0] == shapes[1] and later.inputs.do is not None and earlier.inputs.do is not None


def _steps(scene: Scene) -> Steps:
    """The steps of a right call."""
    if "kept steps" not in scene.memo:
        exact = scene.truth.forward()["o"][0], scene.truth.exact_lse
        given = exact if scene.o is None or scene.lse is None else (scene.o, scene.lse)
        scene.memo["kept steps"] = steps_of(scene.inputs, *given)
    found: Steps = scene.memo["kept steps"]
    return found


def _lse_of(earlier: Scene) -> Tensor:
    assert earlier.lse is not None
    return earlier.lse


def _o_of(earlier: Scene) -> Tensor:
    assert earlier.o is not None
    return earlier.o


def _mean(scene: Scene, name: str) -> Tensor:
    """Mean over the keys that count, of each kv head, `[B, Hkv, 1, D]`."""
    x: Tensor = getattr(scene.inputs, name).double()
    lengths = torch.tensor(scene.case.keys_inside or (scene.case.seq_k,) * x.shape[0])
    count = lengths.clamp(min=1).view(-1, 1, 1, 1)
    return x.sum(2, keepdim=True) / count  # what lies outside is 0


def _mean_of_k(sign: float) -> Callable[[Any, Called], Expectations | None]:
    """The LSE with `q . (mean - kept mean)` times the scale too much, or too little."""

    def expects(_: Any, called: Called) -> Expectations | None:
        later, earlier = called.later, called.earlier
        if later.inputs.k.shape != earlier.inputs.k.shape or later.inputs.softcap or "lse" not in later.outputs:
            return None
        change = (_mean(later, "k") - _mean(earlier, "k")).repeat_interleave(later.group, 1)
        q = later.inputs.q.double()
        shift = sign * later.inputs.scale * (q * change).sum(-1)
        size = abs(later.inputs.scale) * (q.abs() * change.abs()).sum(-1)
        return _shifted(later, "lse", shift / later.unit, size / later.unit)

    return expects


def _mean_of_v(_: Any, called: Called) -> Expectations | None:
    """O with the kept mean of V in place of its own."""
    later, earlier = called.later, called.earlier
    if later.inputs.v.shape != earlier.inputs.v.shape:
        return None
    shift = (_mean(earlier, "v") - _mean(later, "v")).repeat_interleave(later.group, 1)
    return _shifted(later, "o", shift.expand_as(later.outputs["o"]), shift.abs().expand_as(later.outputs["o"]))


def _shifted(scene: Scene, name: str, shift: Tensor, size: Tensor) -> Expectations:
    right = scene.declared((name,))[name]
    slack = _ROUNDINGS * 2.0**-24 * scene.case.dim_qk * size + 2.0**-7 * scene.right[name].total
    return {name: dataclasses.replace(right, value=right.value + shift, total=right.total + slack)}


INTERMEDIATES = (
    _given("lse", "the LSE", lambda o, _, earlier: (o, _lse_of(earlier))),
    _given("o", "the O", lambda _, lse, earlier: (_o_of(earlier), lse)),
    _given("o-and-lse", "the O and the LSE", lambda _, __, earlier: (_o_of(earlier), _lse_of(earlier))),
    _in_backward("delta", "the delta", lambda s, kept: dataclasses.replace(s, delta=kept.delta)),
    _in_backward("ds", "the dS", lambda s, kept: dataclasses.replace(s, ds=kept.formula())),
    _in_backward("p", "the weights P", lambda s, kept: dataclasses.replace(s, p=kept.p, p_dv=kept.p_dv)),
    _in_backward("dp", "the dP", lambda s, kept: dataclasses.replace(s, dp=kept.dp, dp_size=kept.dp_size)),
    _in_backward("k-of-dq", "in the product dS K the K", lambda s, kept: dataclasses.replace(s, dq_keys=kept.k)),
    _in_backward("q-of-dk", "in the product dS^T Q the Q", lambda s, kept: dataclasses.replace(s, dk_rows=kept.q)),
    _in_backward("do-of-dv", "in the product P^T dO the dO", lambda s, kept: dataclasses.replace(s, dv_rows=kept.do)),
    Intermediate(
        "mean-of-k",
        "the second call takes the mean of the keys of the first: it is kept from call to call",
        _mean_of_k(-1.0),
    ),
    Intermediate(
        "mean-of-k-subtracted",
        "the second call subtracts the mean of the keys of the first and adds that of its own to the LSE: it is kept from call to call",
        _mean_of_k(1.0),
    ),
    Intermediate(
        "mean-of-v",
        "the second call adds the mean of the values V of the first: it is kept from call to call",
        _mean_of_v,
    ),
)
