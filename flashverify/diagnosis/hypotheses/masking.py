"""Wrong semantics of how a mask is applied: hidden pairs that keep a logit or a weight, and masks of the wrong polarity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import parts, visited_tiles, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations, Finish
    from flashverify.diagnosis.observation import Scene

__all__ = ["IN_THE_SUM", "MASKING", "in_the_sum_alone"]

IN_THE_SUM = "in the row sum, not in O"

_NUMBERS = (-100.0, -1e3, -1e4, -65504.0, -1e6)


def _inside(scene: Scene) -> Tensor:
    """Bool `[B, 1, Sq, Sk]`: rows and keys of one sequence, inside the declared lengths."""
    at = scene.at
    same = at.row_sequence[:, None, :, None] == at.key_sequence[:, None, None, :]
    inside: Tensor = same & (at.key < at.key_limit)[:, None, None, :] & (at.row < at.rows)[:, None, :, None]
    return inside


def _sets(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """The pairs that a mask may have been applied to: all, or those of visited tiles."""
    inside = _inside(scene)
    yield inside, ""
    seen = set()
    for pairs, detail in visited_tiles(scene):
        pairs = pairs & inside
        key = bytes(pairs.numpy().tobytes())
        if key not in seen:
            seen.add(key)
            yield pairs, detail


def _hidden(
    wanted: Callable[[Scene, Tensor], Iterator[tuple[Tensor, str]]], *, tiled: bool
) -> Callable[[Scene], Iterator[Alternative]]:
    """Hidden pairs take part with other logits, functions of their own `[B, Hq, Sq, Sk]`."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i = scene.inputs
        if i.visible is None or not scene.case.seq_k or bool((i.visible | ~_inside(scene)).all()):
            return
        z = logits(replace(i, visible=None))
        for changed, words in wanted(scene, z):
            bias = torch.where(i.visible, 0.0, changed - z)
            for number, (pairs, detail) in enumerate(_sets(scene) if tiled else ((_inside(scene), ""),)):
                inputs = replace(i, visible=i.visible | pairs, biases=(*i.biases, bias))
                yield Alternative(inputs=inputs, detail=", ".join(filter(None, (words, detail))))
                if not number:
                    said = ", ".join(filter(None, (words, IN_THE_SUM)))
                    yield Alternative(inputs=inputs, finish=in_the_sum_alone(scene), detail=said)

    return build


def in_the_sum_alone(scene: Scene) -> Finish:
    """Pairs that are added to the problem count in the row sum, with values of 0."""
    natural = scene.truth.forward()["lse"][0] * scene.unit

    def finish(found: Expectations) -> Expectations:
        if "o" not in found or "lse" not in found:
            return found
        row = (found["lse"].value * scene.unit - natural).nan_to_num(0.0, 0.0, 0.0).unsqueeze(-1)
        return found | {"o": scene.right["o"].times((-row).exp())}

    return finish


def _zero(_scene: Scene, z: Tensor) -> Iterator[tuple[Tensor, str]]:
    yield torch.zeros_like(z), ""


def _largest(scene: Scene, z: Tensor) -> Iterator[tuple[Tensor, str]]:
    top = logits(scene.inputs).amax(-1, keepdim=True)
    yield torch.where(torch.isfinite(top), top, 0.0).expand_as(z), ""


def _numbers(_scene: Scene, z: Tensor) -> Iterator[tuple[Tensor, str]]:
    for number in _NUMBERS:
        yield z + number, f"{number:g} is added"
        yield torch.full_like(z, number), f"{number:g} stands for minus infinity"


def _causal_inverted(scene: Scene) -> Iterator[Alternative]:
    found = parts(scene)
    if "causal" in found:
        yield Alternative(inputs=with_parts(scene, causal=~found["causal"]))
        at = scene.at
        diagonal = at.key[:, None, None, :] == (at.row + at.shift)[:, None, :, None]
        yield Alternative(inputs=with_parts(scene, causal=~found["causal"] | diagonal), detail="with the row's own key")


MASKING = (
    Semantics(
        name="hidden-pairs-with-logit-zero",
        sentence="the mask multiplies the logits: hidden pairs take part with a logit of 0",
        build=_hidden(_zero, tiled=True),
    ),
    Semantics(
        name="hidden-pairs-weigh-one",
        sentence="hidden pairs weigh exp(0): their exponent, not their weight, is cleared",
        build=_hidden(_largest, tiled=True),
    ),
    Semantics(
        name="hidden-pairs-with-a-number",
        sentence="the mask is a finite number, which loses to large logits: hidden pairs take part",
        build=_hidden(_numbers, tiled=False),
        one_way=True,
    ),
    Semantics(
        name="causal-inverted",
        sentence="the causal mask is inverted: a row sees the keys after its own",
        build=_causal_inverted,
    ),
)
