"""Wrong semantics of a V that is a part of K, as in a latent cache."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.shared_kv import shares
from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    Semantics(
        name="scale-by-dim-v",
        sentence="the scale is 1 / sqrt(Dv), by the channels of V in place of those of K",
        build=_scale_by_v,
    ),
)
