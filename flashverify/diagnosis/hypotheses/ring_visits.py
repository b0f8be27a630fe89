"""Wrong semantics of a ring's backward: of the visits that add to a gradient one alone is kept, or one is lost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import Semantics
from flashverify.diagnosis.readings.devices import CUTS, TWO, counted_devices, devices_of

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypotheses.step_builds import Changes
    from flashverify.diagnosis.observation import Scene

__all__ = ["RING_VISITS"]

_AXES = ((3, "of keys to a row"), (2, "of a key to rows"))


def _kept(pairs: Tensor, s: Steps) -> Steps:
    """These pairs alone give to the gradients."""
    return replace(s, ds=torch.where(pairs, s.formula(), 0.0), p_dv=torch.where(pairs, s.p_dv, 0.0))


def _visits(scene: Scene) -> Changes:
    """Keys come to a rank from the one before it: at step t it has those of the rank t before its own."""
    case, see = scene.case, scene.inputs.visible
    for name, (how, cut), (axis, what) in product((*counted_devices(scene), TWO), CUTS, _AXES):
        count = devices_of(scene, name)
        if not count:
            continue
        rows, keys = cut(case.seq_q, count), cut(case.seq_k, count)
        step = ((rows[:, None] - keys[None, :]) % count)[None, None].expand(1, 1, case.seq_q, case.seq_k)
        there = torch.ones_like(step, dtype=torch.bool) if see is None else see
        last = torch.where(there, step, -1).amax(axis, keepdim=True)
        first = torch.where(there, step, count).amin(axis, keepdim=True)
        among = f"{what}, of pieces {how}, one for each of the {name}"
        for words, pairs in (
            ("the last visit alone is kept", step == last),
            ("the first visit alone is kept", step == first),
            ("the last visit is lost", step != last),
            ("the first visit is lost", step != first),
            ("the last step of the ring is lost", (step != count - 1).expand_as(there)),
            ("the rank's own step is lost", (step != 0).expand_as(there)),
        ):
            if bool((there & ~pairs).any()):
                yield f"{words} {among}", partial(_kept, pairs)


RING_VISITS = (
    Semantics(
        name="ring-visits-not-added",
        sentence="a gradient does not hold the sum of all visits of a ring",
        build=by_steps(_visits),
        outputs=("dq", "dk", "dv"),
        one_way=True,
    ),
)
