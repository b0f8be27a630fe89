"""Wrong semantics of channels, of keys paired with the values of others, and of the scale that follows from a wrong dimension."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Expectations, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["CHANNELS"]

_WIDTHS = (64, 32, 16, 128)


def _cuts(dim: int) -> Iterator[tuple[int, str]]:
    """Channels that are kept: so many, or up to the last multiple of a number."""
    for width in _WIDTHS:
        if width < dim:
            yield width, f"only {width} are read"
    for width in _WIDTHS:
        if dim % width and dim > width:
            yield dim // width * width, f"those behind the last multiple of {width}"
    if dim > 1:
        yield dim - 1, "the last one"
        yield dim // 2, "the second half"


def _cut_logits(scene: Scene) -> Iterator[Alternative]:
    i = scene.inputs
    for kept, detail in _cuts(scene.case.dim_qk):
        yield Alternative(inputs=replace(i, k=i.k * (torch.arange(i.k.shape[-1]) < kept)), detail=detail)


def _cut_values(scene: Scene) -> Iterator[Alternative]:
    """Channels of O that come out as 0."""
    for kept, detail in _cuts(scene.case.dim_v):
        gone = torch.arange(scene.case.dim_v) >= kept

        def finish(found: Expectations, gone: Tensor = gone) -> Expectations:
            return found | ({"o": found["o"].pinned(gone, 0.0)} if "o" in found else {})

        yield Alternative(finish=finish, detail=detail)


def _paired(name: str) -> Callable[[Scene], Iterator[Alternative]]:
    """Keys of k stand beside the values of other keys: of the next or the last one, or of a tile before or after."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, keys = scene.inputs, scene.case.seq_k
        if scene.case.quantised is not None or keys < 2:
            return
        x: Tensor = getattr(i, name)
        place = torch.arange(keys)
        steps = [(1, "of the next key"), (-1, "of the key before")]
        steps += [(by, f"{abs(by)} keys {'on' if by > 0 else 'back'}") for n in TILES if n < keys for by in (-n, n)]
        for by, detail in steps:
            if by % keys:
                at = place + by
                at = torch.where((at < 0) | (at >= keys), place, at)  # the first tile has no other one before it
                found = x[:, :, at]
                yield Alternative(inputs=replace(i, v=found) if name == "v" else replace(i, k=found), detail=detail)

    return build


def _scale_of(dims: Callable[[Scene], Iterator[tuple[float, str]]]) -> Callable[[Scene], Iterator[Alternative]]:
    """1 / sqrt of another number, where the scale is the default one."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if math.isclose(scene.inputs.scale, 1.0 / math.sqrt(scene.case.dim_qk), rel_tol=1e-6):
            for dim, detail in dims(scene):
                if dim != scene.case.dim_qk:
                    inputs = replace(scene.inputs, scale=1.0 / math.sqrt(dim))
                    yield Alternative(inputs=inputs, detail=detail)

    return build


def _padded_dims(scene: Scene) -> Iterator[tuple[float, str]]:
    dim = scene.case.dim_qk
    yield 2.0 ** math.ceil(math.log2(dim)), "up to a power of two"
    for size in (16, 32, 64, 128):
        yield -(-dim // size) * size, f"up to a multiple of {size}"


def _all_heads(scene: Scene) -> Iterator[tuple[float, str]]:
    yield scene.case.dim_qk * scene.case.heads_q, "of all query heads"
    yield scene.case.dim_qk * scene.group, "of the heads of a group"


CHANNELS = (
    Semantics(
        name="channels-missing-in-the-products",
        sentence="some channels of q and k are left out of their product",
        build=_cut_logits,
        one_way=True,
    ),
    Semantics(
        name="channels-of-o-missing",
        sentence="some channels of O come out as 0",
        build=_cut_values,
        outputs=("o",),
    ),
    Semantics(
        name="values-of-other-keys",
        sentence="the weights of keys meet the values of other keys",
        build=_paired("v"),
        outputs=FORWARD,
    ),
    Semantics(
        name="scale-of-padded-dim",
        sentence="the scale is that of the head dimension as it is padded",
        build=_scale_of(_padded_dims),
        one_way=True,
    ),
    Semantics(
        name="scale-of-all-heads",
        sentence="the scale is that of the channels of several heads together",
        build=_scale_of(_all_heads),
    ),
)
