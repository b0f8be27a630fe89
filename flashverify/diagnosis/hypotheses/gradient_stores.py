"""Wrong semantics of how gradients are stored: accumulators that go on, other places, factors, zeros."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.expected import Expected
from flashverify.diagnosis.hypotheses.step_builds import by_steps, has_gradients
from flashverify.diagnosis.hypothesis import TILES, Alternative, Expectations, Semantics
from flashverify.outputs import BACKWARD, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

    Places = Callable[[Tensor], Tensor]

__all__ = ["GRADIENT_STORES"]

_OF_TOKENS = ("dq", "dk", "dv")
_EVERY = tuple(name for name in BACKWARD if name != "delta")


def _each(found: Expectations, change: Places) -> Expectations:
    """The gradients of q, k and v with their elements moved or added up as `change` says, `[B, H, S, D]` each."""
    out = dict(found)
    for name in _OF_TOKENS:
        if name in found:
            x = found[name]
            out[name] = Expected(value=change(x.value), total=change(x.total), overflow=change(x.overflow.double()) > 0)
    return out


def _moved(*changes: tuple[str, int, Places]) -> Callable[[Scene], Iterator[Alternative]]:
    """Elements in another order. Each change has a detail and the axis that it is about, of which there must be two."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if not has_gradients(scene):
            return
        for detail, axis, change in changes:
            if any(x.shape[axis] > 1 for x in (scene.inputs.q, scene.inputs.k)):
                yield Alternative(finish=partial(_each, change=change), detail=detail)

    return build


def _along(axis: int, x: Tensor, *, down: bool = False) -> Tensor:
    """Running sums along an axis, from its last element if `down`."""
    return x.flip(axis).cumsum(axis).flip(axis) if down else x.cumsum(axis)


def _along_tiles(size: int, x: Tensor, *, down: bool = False) -> Tensor:
    """Running sums over tiles of rows or keys; the last one may hold fewer."""
    batch, heads, rows, dim = x.shape
    padded = torch.nn.functional.pad(x, (0, 0, 0, -rows % size))
    return _along(2, padded.view(batch, heads, -1, size, dim), down=down).flatten(2, 3).narrow(2, 0, rows)


def _over(axis: int) -> Callable[[Scene], Iterator[Alternative]]:
    """Running sums over heads or sequences."""
    ways: tuple[tuple[str, Places], ...] = (
        ("", partial(_along, axis)),
        ("from the last one", partial(_along, axis, down=True)),
    )
    if axis == 0:
        ways += (("head by head", lambda x: x.flatten(0, 1).cumsum(0).view_as(x)),)
    return _moved(*((detail, axis, way) for detail, way in ways))


def _over_tiles(scene: Scene) -> Iterator[Alternative]:
    for size in TILES if has_gradients(scene) else ():
        if size < max(scene.case.seq_q, scene.case.seq_k):
            for down, words in ((False, ""), (True, ", from the last one")):
                change = partial(_along_tiles, size, down=down)
                yield Alternative(finish=partial(_each, change=change), detail=f"tiles of {size}{words}")


def _layout(x: Tensor) -> Tensor:
    """Stored with the strides of `[B, S, H, D]` in a tensor that is read as `[B, H, S, D]`."""
    return x.transpose(1, 2).contiguous().view_as(x)


def _exchanged(scene: Scene) -> Iterator[Alternative]:
    def finish(found: Expectations) -> Expectations:
        other = {"dk": "dv", "dv": "dk"}
        return {name: found[other[name]] if other.get(name) in found else x for name, x in found.items()}

    if has_gradients(scene) and scene.case.dim_qk == scene.case.dim_v:
        yield Alternative(finish=finish)


def _at_zero(scene: Scene) -> Iterator[Alternative]:
    everything = torch.ones((), dtype=torch.bool)

    def finish(found: Expectations) -> Expectations:
        return {name: x.pinned(everything, 0.0) if output(name).stage == "backward" else x for name, x in found.items()}

    if has_gradients(scene):
        yield Alternative(finish=finish)


def _times(names: tuple[str, ...], *factors: Callable[[Scene], float]) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        for factor in factors if has_gradients(scene) else ():
            by = factor(scene)
            if by != 1.0 and math.isfinite(by):
                yield Alternative(finish=partial(_by, names, by))

    return build


def _by(names: tuple[str, ...], by: float, found: Expectations) -> Expectations:
    return {name: x.times(by) if name in names else x for name, x in found.items()}


def _default(scene: Scene) -> float:
    scale = scene.inputs.scale
    return 1.0 / math.sqrt(scene.case.dim_qk) / scale if scale else 1.0


def _root(scene: Scene) -> float:
    scale = scene.inputs.scale
    return 1.0 / math.sqrt(scale) if scale > 0 else 1.0


def _scaled_weights(scene: Scene) -> float:
    return scene.inputs.scale


def _once_more(s: Steps) -> Steps:
    return replace(s, p_dv=s.p_dv * s.p)


GRADIENT_STORES = (
    Semantics(
        name="gradient-not-reset-over-heads",
        sentence="the accumulator of a gradient is not cleared between heads: it goes on from the head before",
        build=_over(1),
        outputs=_OF_TOKENS,
    ),
    Semantics(
        name="gradient-not-reset-over-sequences",
        sentence="the accumulator of a gradient is not cleared between sequences: it goes on from the one before",
        build=_over(0),
        outputs=_OF_TOKENS,
    ),
    Semantics(
        name="gradient-not-reset-over-tiles",
        sentence="the accumulator of a gradient is not cleared between tiles: it goes on from the tile before",
        build=_over_tiles,
        outputs=_OF_TOKENS,
    ),
    *(
        Semantics(
            name=f"gradient-stored-at-another-{word}",
            sentence=f"the gradient is stored at the place of another {words}",
            build=_moved(
                ("the one before", axis, partial(torch.roll, shifts=-1, dims=axis)),
                ("the next one", axis, partial(torch.roll, shifts=1, dims=axis)),
                ("counted from the end", axis, partial(torch.flip, dims=(axis,))),
            ),
            outputs=_OF_TOKENS,
        )
        for axis, word, words in ((1, "head", "head"), (0, "sequence", "sequence"), (2, "row", "row or key"))
    ),
    Semantics(
        name="gradient-layout-exchanged",
        sentence="the gradient is stored with the strides of heads and rows exchanged",
        build=_moved(("", 1, _layout)),
        outputs=_OF_TOKENS,
    ),
    Semantics(
        name="dk-dv-exchanged",
        sentence="dK and dV stand in each other's place",
        build=_exchanged,
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="dv-weighted-twice",
        sentence="dV is summed with the square of P",
        build=by_steps(lambda _scene: [("", _once_more)]),
        outputs=("dv",),
    ),
    Semantics(
        name="dv-scaled",
        sentence="dV is multiplied by the scale of the logits",
        build=_times(("dv",), _scaled_weights),
        outputs=("dv",),
    ),
    Semantics(
        name="gradient-halved",
        sentence="the gradient is half of what it is",
        build=_times(_EVERY, lambda _scene: 0.5),
        outputs=_EVERY,
    ),
    Semantics(
        name="gradient-with-default-scale",
        sentence="the gradient is multiplied by 1 / sqrt(D) whatever scale is asked for",
        build=_times(("dq", "dk"), _default),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="gradient-with-root-of-scale",
        sentence="the gradient is multiplied by the square root of the scale",
        build=_times(("dq", "dk"), _root),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="gradient-left-at-zero",
        sentence="the gradient is 0",
        build=_at_zero,
        outputs=("delta", *_EVERY),
    ),
)
