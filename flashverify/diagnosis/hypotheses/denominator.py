"""Wrong semantics of the row sum that O is divided by: something is added to it, or it is rounded as a logarithm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import tiles
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["DENOMINATOR"]

_EPSILONS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


def _log_sum(scene: Scene) -> Tensor:
    """The logarithm of the row sum beside the row's maximum, natural units, `[B, Hq, Sq]`; 0 in rows without keys."""
    natural = scene.truth.forward()["lse"][0] * scene.unit
    top = logits(scene.inputs).amax(-1) if scene.case.seq_k else natural
    if scene.inputs.sink is not None:
        top = torch.maximum(top, scene.inputs.sink.double().view(1, -1, 1))
    return (natural - top).nan_to_num(0.0, 0.0, 0.0)


def _plus(scene: Scene, added: Tensor | float, detail: str, *, told: bool = True) -> Iterator[Alternative]:
    """The row sum plus a number, which the LSE has too, or (where not only `told`) has not."""
    ratio = torch.as_tensor(added, dtype=torch.float64) * (-_log_sum(scene)).exp()
    ratio = torch.where(scene.truth.empty_rows, 0.0, ratio)
    for in_lse in (True, False)[: 1 + (not told)]:

        def finish(found: Expectations, in_lse: bool = in_lse) -> Expectations:
            if "o" not in found:
                return found
            lse = found["lse"]
            if in_lse:
                lse = replace(lse, value=lse.value + torch.log1p(ratio) / scene.unit, strict=None)
            return {"o": found["o"].times((1.0 / (1.0 + ratio)).unsqueeze(-1)), "lse": lse}

        yield Alternative(finish=finish, detail=detail)


def _zero_logit(scene: Scene) -> Iterator[Alternative]:
    """One more logit of 0, as of a sink of 0."""
    i = scene.inputs
    zero = torch.zeros(scene.case.heads_q, dtype=torch.float64)
    yield Alternative(inputs=replace(i, sink=zero if i.sink is None else torch.logaddexp(i.sink.double(), zero)))


def _one(scene: Scene) -> Iterator[Alternative]:
    yield from _plus(scene, 1.0, "", told=False)


def _epsilon(scene: Scene) -> Iterator[Alternative]:
    for number in _EPSILONS:
        yield from _plus(scene, number, f"of {number:g}", told=False)


def _padded(scene: Scene) -> Iterator[Alternative]:
    """Keys from the last one up to the end of the tile weigh exp(0) = 1, in the tiles that the row visits or in all rows."""
    end = scene.at.keys[:, None, :]
    for size in tiles(scene):
        yield from _plus(scene, (-end % size).double(), f"up to a multiple of {size}", told=False)


def _rounded_lse(scene: Scene) -> Iterator[Alternative]:
    """O is the sum of exp(S - LSE) V with the LSE that is returned: fp32 has few bits behind the point of a large one."""
    got = scene.outputs.get("lse")
    if got is None:
        return
    natural = scene.truth.forward()["lse"][0] * scene.unit
    off = (natural - got * scene.unit).nan_to_num(0.0, 0.0, 0.0)

    def finish(found: Expectations) -> Expectations:
        return found | ({"o": found["o"].times(off.exp().unsqueeze(-1))} if "o" in found else {})

    if bool((off != 0).any()) and math.isfinite(float(off.abs().max())):
        yield Alternative(finish=finish)


DENOMINATOR = (
    Semantics(
        name="sink-not-asked-for",
        sentence="the row sum holds one more logit of 0: a sink that is not declared",
        build=_zero_logit,
    ),
    Semantics(
        name="row-sum-plus-one",
        sentence="the row sum is one too large beside its maximum",
        build=_one,
        outputs=FORWARD,
    ),
    Semantics(
        name="row-sum-plus-epsilon",
        sentence="a small constant is added to the row sum",
        build=_epsilon,
        one_way=True,
        outputs=FORWARD,
    ),
    Semantics(
        name="padded-keys-weigh-one",
        sentence="keys behind the last one, up to the end of the tile, enter the row sum with exp(0)",
        build=_padded,
        outputs=FORWARD,
    ),
    Semantics(
        name="normalised-by-rounded-lse",
        sentence="O is normalised by exp(-LSE) with an LSE that is rounded: the error grows with the size of the logits",
        build=_rounded_lse,
        outputs=("o",),
    ),
)
