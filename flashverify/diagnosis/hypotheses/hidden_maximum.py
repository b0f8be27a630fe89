"""A running maximum that takes in keys that the mask hides."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits, modified, products
from flashverify.diagnosis.hypothesis import TILES, Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import visited_tiles
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.expected import Expected
    from flashverify.diagnosis.observation import Scene

__all__ = ["HIDDEN_MAXIMUM"]

_LN2 = math.log(2.0)
_NORMAL, _LEAST = -126.0 * _LN2, -150.0 * _LN2
"""Natural logarithms of the smallest normal fp32 number, and of a number below the smallest subnormal one."""
_ROUNDING = 2.0**-21
"""Of a maximum, what an LSE that is a small number may be off by."""


def _maxima(scene: Scene) -> Iterator[Alternative]:
    """The maximum of each row is over the keys of every tile that is visited, those behind the last key with the logit 0."""
    case, at = scene.case, scene.at
    if not case.seq_k or not case.seq_q:
        return
    open_logits = modified(products(scene.inputs), scene.inputs, scene.inputs.biases)
    own = logits(scene.inputs)
    visited: dict[str, tuple[Tensor, int]] = {
        words: (pairs, int(words.split()[-2])) for pairs, words in visited_tiles(scene)
    }
    if scene.inputs.visible is None:
        every = torch.ones((), dtype=torch.bool)
        visited = {f"in tiles of {size} keys": (every, size) for size in TILES}
    for words, (pairs, size) in visited.items():
        pairs = pairs.expand_as(own)
        hidden = open_logits.masked_fill(~pairs | (own > -math.inf), -math.inf).amax(-1)
        last = (at.key == at.key_limit - 1)[:, None, None, :] & pairs
        cut = last.any(-1) & (at.keys % size != 0)[:, None, :]
        start = torch.where(cut, hidden.clamp(min=0.0), hidden)
        if bool((start > own.amax(-1)).any()):
            yield _from(scene, own, start, words)
    if scene.inputs.visible is None and not bool((at.keys % TILES[-1]).any()):
        yield Alternative()


def _from(scene: Scene, own: Tensor, start: Tensor, words: str) -> Alternative:
    """The weights are exp(S - max(m, start)): 0 below the smallest normal number, and of a row of such weights the LSE is the start."""
    z = own - start.clamp(min=-1e30).unsqueeze(-1)
    inputs = replace(scene.inputs, visible=z >= _NORMAL)
    gone = (z < _NORMAL).all(-1)
    unsure = ((z < -80.0) & (z > _LEAST)).any(-1) & (z.amax(-1) < -60.0)

    def finish(expected: Expectations) -> Expectations:
        if "o" not in expected:
            return expected
        o = expected["o"].pinned(gone.unsqueeze(-1), 0.0).open(unsure.unsqueeze(-1))
        return {"o": o, "lse": _lse(scene, expected["lse"], gone, start).open(unsure)}

    return Alternative(inputs=inputs, finish=finish, detail=words)


def _lse(scene: Scene, expected: Expected, gone: Tensor, start: Tensor) -> Expected:
    """The start where all weights are gone; elsewhere as it is, with the rounding of a large maximum."""
    value = torch.where(gone, start / scene.unit, expected.value)
    more = _ROUNDING * torch.where(torch.isfinite(start), start.abs(), 0.0) / scene.unit
    found = expected.pinned(gone, 0.0)
    return replace(found, value=value, total=found.total + more)


HIDDEN_MAXIMUM = (
    Semantics(
        name="maximum-over-hidden-keys",
        sentence="the running maximum takes in keys that the mask hides, and 0 for those behind the last one: where these are far "
        "above the keys that a row sees its weights vanish, and a row that sees no key has a finite LSE",
        build=_maxima,
        outputs=FORWARD,
    ),
)
