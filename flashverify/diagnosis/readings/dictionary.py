"""What a kernel may compute in place of each step of dS and of the weights: the words and the values of every variant."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.checks.passes.logits import logits, products
from flashverify.diagnosis.readings.moves import key_moves, moved, row_moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

    Value = Callable[[Scene, Steps], Any]

__all__ = ["DECLARED", "Option", "RowTerms", "added_names", "options"]

_CHANNELS = (8, 16, 32, 64, 128)


class Option(NamedTuple):
    """A variant of one step.

    Attributes:
        words: a sentence without its full stop; empty for the declared step.
        value: of a problem and its declared steps; None where the case has not what it is about.
        elsewhere: whether something is read at another place.
    """

    words: str
    value: Value
    elsewhere: bool = False


class RowTerms(NamedTuple):
    """What dP is compared with: delta and dLSE, `[B, Hq, Sq]`."""

    delta: Tensor
    dlse: Tensor


def options(scene: Scene) -> dict[str, tuple[Option, ...]]:
    """The variants of each step that a case like `scene` may show."""
    found = {
        "weights": _weights(scene),
        "kept": _kept(scene),
        "dp": _dp(scene),
        "rows": _row_terms(scene),
        "slope": _slopes(scene),
        "row operand": _operands(row_moves(scene), "row"),
        "key operand": _operands(key_moves(scene), "key"),
    }
    return {name: tuple(variants) for name, variants in found.items()}


DECLARED = {
    "weights": Option("", lambda _scene, s: s.p),
    "kept": Option("", lambda _scene, s: s.kept),
    "dp": Option("", lambda _scene, s: s.dp),
    "rows": Option("", lambda _scene, s: RowTerms(s.delta, s.dlse)),
    "slope": Option("", lambda _scene, s: s.slope),
    "row operand": Option("", lambda _scene, _s: None),
    "key operand": Option("", lambda _scene, _s: None),
}
"""Each step as it is declared."""


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


def _of_row(words: str, read: Callable[[Steps, Callable[[Tensor], Tensor]], Any]) -> Value:
    """What `read` makes of the steps and of how tensors of rows are read elsewhere."""

    def value(scene: Scene, s: Steps) -> Any:
        move = row_moves(scene).get(words)
        return None if move is None else read(s, lambda x: moved(x, move))

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


def _weights(scene: Scene) -> Iterator[Option]:
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
    yield Option("the weights are those of all pairs of the row alike: exp(-LSE)", lambda _scene, s: (-s.lse).exp().unsqueeze(-1) * s.see)
    if scene.case.dropout:
        yield Option("the weights are multiplied by what dropout left", lambda _scene, s: s.p * s.kept)
        yield Option("the weights are 0 where dropout dropped them", lambda _scene, s: s.p * (s.kept > 0))
    for words in row_moves(scene):
        yield Option(f"the weights take the LSE of {words}", _of_row(words, _lse_of), True)
        yield Option(f"the weights are those of {words}", _of_row(words, lambda s, read: read(s.p)), True)
    for number in range(len(scene.inputs.biases)):
        yield from _added_terms(scene, number)


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
        biases = [bias.double().expand(s.p.shape) for bias in scene.inputs.biases]
        z = s.z + moved(biases[number], move) - biases[number]
        return (z - s.lse.unsqueeze(-1)).exp()

    return value


def added_names(scene: Scene) -> list[str]:
    """Names of what is added to the logits, in the order of `Inputs.biases`."""
    problem = scene.problem
    given = (("the bias", problem.bias), ("ALiBi", problem.slopes), ("the relative bias", problem.relative_bias))
    return [name for name, tensor in given if tensor is not None]


def _kept(scene: Scene) -> Iterator[Option]:
    if scene.case.dropout:
        yield Option("the weights are neither dropped nor scaled by 1 / (1 - p)", lambda _scene, s: torch.ones_like(s.p))
        yield Option(
            "the weights are scaled by 1 / (1 - p) but not dropped",
            lambda other, s: torch.ones_like(s.p) / (1 - other.case.dropout),
        )
        yield Option("the weights are dropped but not scaled by 1 / (1 - p)", lambda _scene, s: (s.kept > 0).double())


def _slopes(scene: Scene) -> Iterator[Option]:
    if not scene.inputs.softcap:
        return

    def capped(*, by: float = 1.0, again: bool = False) -> Value:
        def value(other: Scene, s: Steps) -> Tensor | None:
            cap = other.inputs.softcap
            if not cap:
                return None
            t = torch.tanh(products(other.inputs) * (by or 1 / s.scale) / cap)
            return 1 - torch.tanh(t) ** 2 if again else 1 - t**2

        return value

    def of_tanh(change: Callable[[Tensor], Tensor]) -> Value:
        def value(other: Scene, _s: Steps) -> Tensor | None:
            cap = other.inputs.softcap
            return change(torch.tanh(products(other.inputs) / cap)) if cap else None

        return value

    what = "the derivative of the softcap is"
    yield Option("the derivative of the softcap stands in it", lambda _scene, s: s.slope)
    yield Option(f"{what} missing", lambda _scene, s: torch.ones_like(s.slope))
    yield Option(f"{what} squared", lambda _scene, s: s.slope**2)
    yield Option(f"{what} taken at the capped logit", capped(again=True))
    yield Option(f"{what} taken at the product without the scale", capped(by=0.0))
    yield Option(f"{what} taken as 1 - tanh", of_tanh(lambda t: 1 - t))
    yield Option(f"{what} taken as 1 + tanh^2", of_tanh(lambda t: 1 + t**2))
    yield Option(f"{what} taken as 1 - tanh^2 / cap", lambda other, s: 1 - (1 - s.slope) / other.inputs.softcap)
    yield Option(
        f"{what} taken at the whole logit, with what is added behind the cap",
        lambda other, s: 1 - (s.z.masked_fill(~s.see, 0.0) / other.inputs.softcap) ** 2,
    )


def _dp(scene: Scene) -> Iterator[Option]:
    if scene.case.dropout:
        yield Option("dP is neither dropped nor scaled by 1 / (1 - p)", lambda _scene, s: s.do @ s.v.mT)
        yield Option(
            "dP is scaled by 1 / (1 - p) but not dropped",
            lambda other, s: (s.do @ s.v.mT) / (1 - other.case.dropout),
        )
        yield Option("dP is dropped but not scaled by 1 / (1 - p)", lambda _scene, s: (s.do @ s.v.mT) * (s.kept > 0))
    for size in _CHANNELS:
        if size < scene.case.dim_v:
            yield Option(f"dP sums the first {size} channels only", _first_channels(size))
    for words in key_moves(scene):
        yield Option(f"dP is made of V of {words}", _dp_of_key(words), True)
    for words in row_moves(scene):
        yield Option(f"dP is made of dO of {words}", _of_row(words, lambda s, read: (read(s.do) @ s.v.mT) * s.kept), True)


def _first_channels(size: int) -> Value:
    return lambda _scene, s: (s.do[..., :size] @ s.v[..., :size].mT) * s.kept


def _dp_of_key(words: str) -> Value:
    def value(scene: Scene, s: Steps) -> Tensor | None:
        move = key_moves(scene).get(words)
        return None if move is None else (s.do @ moved(s.v, move).mT) * s.kept

    return value


def _row_terms(scene: Scene) -> Iterator[Option]:
    for words in row_moves(scene):
        yield Option(f"delta is that of {words}", _of_row(words, lambda s, read: RowTerms(read(s.delta), s.dlse)), True)
        yield Option(
            f"delta is made of O of {words}",
            _of_row(words, lambda s, read: RowTerms((s.do * read(s.o)).sum(-1), s.dlse)),
            True,
        )
        if scene.inputs.dlse is not None:
            yield Option(f"dLSE is that of {words}", _of_row(words, lambda s, read: RowTerms(s.delta, read(s.dlse))), True)
            yield Option(
                f"delta and dLSE are those of {words}",
                _of_row(words, lambda s, read: RowTerms(read(s.delta), read(s.dlse))),
                True,
            )
    if scene.case.dropout:
        yield Option(
            "delta is that of attention without dropout",
            lambda _scene, s: RowTerms((s.p * (s.do @ s.v.mT)).sum(-1), s.dlse),
        )
    for size in _CHANNELS:
        if size < scene.case.dim_v:
            yield Option(f"delta sums the first {size} channels only", _delta_of_channels(size))


def _delta_of_channels(size: int) -> Value:
    return lambda _scene, s: RowTerms((s.do * s.o)[..., :size].sum(-1), s.dlse)


def _operands(moves: Any, kind: str) -> Iterator[Option]:
    """Which rows or keys the product is taken with: the value is how a tensor of them is read."""
    for words in moves:
        yield Option(words, _reader(words, kind), True)


def _reader(words: str, kind: str) -> Value:
    def value(scene: Scene, _s: Steps) -> Any:
        move = (row_moves if kind == "row" else key_moves)(scene).get(words)
        return None if move is None else lambda x: moved(x, move)

    return value
