"""What a kernel may take for the weights of the backward."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.readings.backward.moves import key_moves, moved, row_moves
from flashverify.diagnosis.readings.backward.variants import Option, added_names, draws_elsewhere, of_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.variants import Value

__all__ = ["CAPPED", "kept_variants", "weight_variants"]

CAPPED = "the weights are multiplied by cap', the derivative of the softcap"
"""Of dV, whose sum has no such factor."""

_BY_DISTANCE = ("ALiBi", "the relative bias")
"""What is added to the logits by the distance of a row and a key."""


def _with_lse(lse: Value) -> Value:
    """exp(S - another LSE) of visible pairs."""

    def value(scene: Scene, s: Steps) -> Tensor | None:
        other = lse(scene, s)
        return None if other is None else (s.z - other.unsqueeze(-1)).exp()

    return value


def _with_logits(**changes: object) -> Value:
    """exp(other logits - LSE) in rows that see a key."""

    def value(scene: Scene, s: Steps) -> Tensor:
        z = logits(replace(scene.inputs, **changes))  # type: ignore[arg-type]
        return (z - s.lse.unsqueeze(-1)).exp() * s.some.unsqueeze(-1)

    return value


def _lse_of(s: Steps, read: Callable[[Tensor], Tensor]) -> Tensor:
    """exp(S - LSE) with the LSE read elsewhere; where nothing is read there is no weight."""
    lse = read(s.lse.masked_fill(~s.some, torch.inf))
    nothing = read(torch.ones_like(s.lse)) == 0
    return (s.z - lse.masked_fill(nothing, torch.inf).unsqueeze(-1)).exp()


def _without_sink(scene: Scene, s: Steps) -> Tensor | None:
    if scene.inputs.sink is None:
        return None
    rest = (s.lse.exp() - scene.inputs.sink.double().view(1, -1, 1).exp()).clamp(min=0.0)
    return torch.where(rest > 0, rest.log(), torch.inf)


def _sink_twice(scene: Scene, s: Steps) -> Tensor | None:
    return None if scene.inputs.sink is None else torch.logaddexp(s.lse, scene.inputs.sink.double().view(1, -1, 1))


def weight_variants(scene: Scene) -> Iterator[Option]:
    """exp(S - LSE) of other logits, another LSE, or other pairs."""
    yield Option("hidden pairs keep their weight exp(S - LSE)", _with_logits(visible=None))
    if scene.inputs.sink is not None:
        yield Option("the weights of the backward leave out the sink", _with_lse(_without_sink))
        yield Option("the weights of the backward count the sink twice", _with_lse(_sink_twice))
    if scene.inputs.softcap:
        yield Option("the weights are made of logits without the softcap", _with_logits(softcap=None))
    if scene.inputs.biases:
        yield Option("the weights are made of logits to which nothing is added", _with_logits(biases=()))
    yield Option("the weights are not normalised: exp(S)", _with_lse(lambda _scene, s: s.lse * 0))
    yield Option(
        "the weights are exp(S - the largest S of the row)",
        _with_lse(lambda _scene, s: s.z.amax(-1).masked_fill(~s.some, 0.0)),
    )
    yield Option("the weights take ln 2 times the LSE", _with_lse(lambda _scene, s: s.lse * math.log(2.0)))
    yield Option("the weights take log2(e) times the LSE", _with_lse(lambda _scene, s: s.lse / math.log(2.0)))
    yield Option(
        "the weights are those of all pairs of the row alike: exp(-LSE)",
        lambda _scene, s: (-s.lse).exp().unsqueeze(-1) * s.see,
    )
    if scene.case.dropout:
        yield Option("the weights are multiplied by what dropout left", lambda _scene, s: s.p * s.kept)
        yield Option("the weights are 0 where dropout dropped them", lambda _scene, s: s.p * (s.kept > 0))
    for words in row_moves(scene):
        yield Option(f"the weights take the LSE of {words}", of_row(words, _lse_of), True)
        yield Option(f"the weights are those of {words}", of_row(words, lambda s, read: read(s.p)), True)
        yield Option(f"the weights are made of Q of {words}", _with_operand("q", words), True)
    for words in key_moves(scene):
        yield Option(f"the weights are made of K of {words}", _with_operand("k", words), True)
    for number in range(len(scene.inputs.biases)):
        yield from _added_terms(scene, number)
    if any(name in _BY_DISTANCE for name in added_names(scene)):
        for words in row_moves(scene):
            yield Option(f"the weights take the mask and the distances of {words}", _at_row(words), True)


def _added_terms(scene: Scene, number: int) -> Iterator[Option]:
    """What is added to the logits, read at other rows and heads."""
    name = added_names(scene)[number]
    for words in row_moves(scene):
        yield Option(f"the weights take {name} of {words}", _with_added(number, words), True)


def _with_added(number: int, words: str) -> Value:
    def value(scene: Scene, s: Steps) -> Tensor | None:
        move = row_moves(scene).get(words)
        if move is None or len(scene.inputs.biases) <= number:
            return None
        bias = scene.inputs.biases[number].double().expand(s.p.shape)
        z: Tensor = s.z + moved(bias, move) - bias
        return (z - s.lse.unsqueeze(-1)).exp()

    return value


def _with_operand(name: str, words: str) -> Value:
    """exp(S - LSE) with the Q of another row, or the K of another key, in the products; where nothing is read the product is 0."""

    def value(scene: Scene, s: Steps) -> Tensor | None:
        move = (row_moves if name == "q" else key_moves)(scene).get(words)
        if move is None:
            return None
        q, k = (moved(s.q, move), s.k) if name == "q" else (s.q, moved(s.k, move))
        z = logits(replace(scene.inputs, q=q, k=k))
        return (z - s.lse.unsqueeze(-1)).exp()

    return value


def _at_row(words: str) -> Value:
    """exp(S - LSE) with what depends on the position of a row, the mask and the terms by distance, as it is at another row."""

    def value(scene: Scene, s: Steps) -> Tensor | None:
        move, names = row_moves(scene).get(words), added_names(scene)
        if move is None or (scene.inputs.visible is None and not any(name in _BY_DISTANCE for name in names)):
            return None  # nothing depends on the position
        z = s.z if scene.inputs.visible is None else logits(replace(scene.inputs, visible=None))
        for name, bias in zip(names, scene.inputs.biases, strict=True):
            if name in _BY_DISTANCE:
                wide = bias.double().expand(s.p.shape)
                z = z + moved(wide, move) - wide
        see = moved(s.see, move) & s.some.unsqueeze(-1)
        return (z.masked_fill(~see, -torch.inf) - s.lse.unsqueeze(-1)).exp()

    return value


def kept_variants(scene: Scene) -> Iterator[Option]:
    """What the weights of dV are multiplied by: with dropout, and under a softcap."""
    if scene.inputs.softcap:
        yield Option(CAPPED, lambda _scene, s: s.kept * s.slope)
    if scene.case.dropout:
        yield Option(
            "the weights are neither dropped nor scaled by 1 / (1 - p)", lambda _scene, s: torch.ones_like(s.p)
        )
        yield Option(
            "the weights are scaled by 1 / (1 - p) but not dropped",
            lambda other, s: torch.ones_like(s.p) / (1 - other.case.dropout),
        )
        yield Option("the weights are dropped but not scaled by 1 / (1 - p)", lambda _scene, s: (s.kept > 0).double())
        for words, value in draws_elsewhere(scene):
            yield Option(f"the draws of dropout are those of {words}", value, True)
