"""Wrong semantics of a V that is a part of K, as in a latent cache."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.shared_kv import shares
from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["SHARED_KV"]


def _rest(scene: Scene) -> int:
    """Channels of K beyond V; 0 where K and V have buffers of their own."""
    return scene.case.dim_qk - scene.case.dim_v if shares(scene.case) else 0


def _last_channels(scene: Scene) -> Iterator[Alternative]:
    rest = _rest(scene)
    if rest:
        yield Alternative(inputs=replace(scene.inputs, v=scene.inputs.k[..., rest:]))


def _without_rest(scene: Scene) -> Iterator[Alternative]:
    if _rest(scene):
        k = scene.inputs.k
        inside = torch.arange(k.shape[-1], device=k.device) < scene.case.dim_v
        yield Alternative(inputs=replace(scene.inputs, k=k * inside))


def _rest_of(change: Callable[[Tensor], Tensor], axis: int) -> Callable[[Scene], Iterator[Alternative]]:
    """The channels of K beyond V are a function of those, which is asked where `axis` has several entries."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if _rest(scene) and scene.inputs.k.shape[axis] > 1:
            k, width = raw(scene, scene.inputs).k, scene.case.dim_v
            yield Alternative(inputs=replace(scene.inputs, k=torch.cat((k[..., :width], change(k[..., width:])), -1)))

    return build


def _other_order(which: str) -> Callable[[Scene], Iterator[Alternative]]:
    """The channels of Q, or of K in the logits, as if those beyond V came first."""

    def build(scene: Scene) -> Iterator[Alternative]:
        rest = _rest(scene)
        if rest:
            x = getattr(scene.inputs, which)
            yield Alternative(inputs=replace(scene.inputs, **{which: x.roll(-rest, -1)}))

    return build


def _scale_by_v(scene: Scene) -> Iterator[Alternative]:
    if _rest(scene):
        yield Alternative(inputs=replace(scene.inputs, scale=1.0 / math.sqrt(scene.case.dim_v)))


SHARED_KV = (
    Semantics(
        name="shared-v-last-channels",
        sentence="the values are the last channels of the buffer of K, not the first",
        build=_last_channels,
    ),
    Semantics(
        name="shared-k-without-rest",
        sentence="the channels of K beyond those of V, the rotary part of a latent cache, are missing in the logits",
        build=_without_rest,
    ),
    *(
        Semantics(
            name=f"shared-rest-of-{name}",
            sentence=f"the channels of K beyond those of V, the rotary part of a latent cache, are those of {words}",
            build=_rest_of(change, axis),
        )
        for name, words, axis, change in (
            ("first-sequence", "the first sequence for all", 0, lambda x: x[:1].expand_as(x)),
            ("next-sequence", "the next sequence", 0, lambda x: x.roll(-1, 0)),
            ("first-head", "the first head for all", 1, lambda x: x[:, :1].expand_as(x)),
            ("first-key", "the first key for all", 2, lambda x: x[:, :, :1].expand_as(x)),
            ("next-key", "the next key", 2, lambda x: x.roll(-1, 2)),
        )
    ),
    *(
        Semantics(
            name=f"shared-rest-first-in-{which}",
            sentence=f"the channels beyond those of V, the rotary part of a latent cache, are taken for the first ones of {which.upper()}, not the last",
            build=_other_order(which),
        )
        for which in ("q", "k")
    ),
    Semantics(
        name="scale-by-dim-v",
        sentence="the scale is 1 / sqrt(Dv), by the channels of V in place of those of K",
        build=_scale_by_v,
    ),
)
