"""Wrong semantics of merges whose partial results have the weights of each other."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypotheses.merging import pieces
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.readings.devices import CUTS, TWO, counted_devices, devices_of
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Weights = Callable[[Tensor], Tensor]
    """Of the LSE of each part, `[n, B, Hq, Sq]`, the logarithms of the weights that their O get."""

__all__ = ["MERGE_WEIGHTS"]


def _running(every: Tensor) -> Tensor:
    """Each part is merged with all before it, and each of the two has the weight of the other."""
    total, found = every[0], [torch.zeros_like(every[0])]
    for part in every[1:]:
        of_part, of_total = (torch.nn.functional.logsigmoid(x) for x in (total - part, part - total))
        found = [weight + of_total for weight in found] + [of_part]
        total = torch.logaddexp(total, part)
    return torch.stack(found)


def _at_once(moved: Callable[[Tensor], Tensor]) -> Weights:
    """All parts are merged at once, each with the weight of another one."""
    return lambda every: moved(every) - every.logsumexp(0)


def _cuts(scene: Scene) -> Iterator[tuple[Tensor, int, str, tuple[Weights, ...]]]:
    """Ways to cut the keys: the part of each key, `[..., Sq, Sk]`, how many there are, words, and what their weights may be."""
    both = (_running, _at_once(lambda x: x.flip(0)), _at_once(lambda x: x.roll(1, 0)))
    for piece in pieces(scene):
        yield piece, scene.form.n_splits, "", both
    for name, (how, cut) in product((*counted_devices(scene), TWO), CUTS):
        count = devices_of(scene, name)
        if count > 1 and name != "n_splits":
            step = (cut(scene.case.seq_q, count)[:, None] - cut(scene.case.seq_k, count)) % count
            yield step[None, None], count, f"of pieces {how}, one for each of the {name}", (_running,)


def _exchanged(scene: Scene) -> Iterator[Alternative]:
    """Nothing is asked of rows that see no key in one of the parts, which kernels merge or not."""
    if not scene.case.seq_k or not scene.case.seq_q:
        return
    z = logits(scene.inputs)
    for piece, count, words, ways in _cuts(scene):
        piece = piece.expand(z.shape)
        every = torch.stack([z.masked_fill(piece != n, -torch.inf).logsumexp(-1) for n in range(count)])
        unsure = torch.isinf(every).any(0)
        if bool(unsure.all()):
            continue
        for weights in ways:
            more = (weights(every) - (every - every.logsumexp(0))).masked_fill(unsure, 0.0)
            bias = more.movedim(0, -1).gather(-1, piece)

            def finish(found: Expectations, unsure: Tensor = unsure) -> Expectations:
                lse = {"lse": scene.right["lse"]} if "lse" in scene.right else {}
                return ({"o": found["o"].open(unsure.unsqueeze(-1))} if "o" in found else {}) | lse

            yield Alternative(
                inputs=replace(scene.inputs, biases=(*scene.inputs.biases, bias)), finish=finish, detail=words
            )


MERGE_WEIGHTS = (
    Semantics(
        name="merge-weights-exchanged",
        sentence="partial results of the keys are merged with the weights of each other",
        build=_exchanged,
        outputs=FORWARD,
    ),
)
