"""Wrong semantics of the backward where a row sees no key or a tile has padded keys, and of its dropout."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.dropout import drawn
from flashverify.diagnosis.hypotheses.step_builds import by_steps, has_gradients
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import tiles
from flashverify.outputs import OF_DS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Change, Steps
    from flashverify.diagnosis.observation import Scene

__all__ = ["EMPTY_GRADIENTS"]

_LARGEST = 88.7
"""Of natural exponents in fp32."""


def _empty(scene: Scene) -> Tensor:
    """Bool `[B, Hq, Sq]`: rows of their sequence that see no key."""
    inside = (scene.at.row < scene.at.rows)[:, None, :]
    found: Tensor = scene.truth.empty_rows & inside
    return found


def _empty_nan(scene: Scene) -> Iterator[Alternative]:
    empty = _empty(scene) if has_gradients(scene) else None
    if empty is None or not bool(empty.any()):
        return
    heads = empty.any(2).reshape(empty.shape[0], -1, scene.group).any(2)[:, :, None, None]

    def finish(found: Expectations) -> Expectations:
        out = dict(found)
        if "dq" in found:
            out["dq"] = found["dq"].not_finite(empty.unsqueeze(-1))
        for name in {"dk", "dv"} & found.keys():
            out[name] = found[name].maybe_lost(heads)
        return out

    yield Alternative(finish=finish)


def _empty_weigh(scene: Scene) -> Iterator[tuple[str, Change]]:
    """Exp(x - LSE) is 1, or 1 over the number of keys, where both are the same large negative number."""
    empty, at = _empty(scene), scene.at
    if not bool(empty.any()):
        return
    same = at.row_sequence[:, None, :, None] == at.key_sequence[:, None, None, :]
    keys = same & (at.key < at.key_limit)[:, None, None, :] & empty.unsqueeze(-1)

    def weighing(share: Tensor, s: Steps) -> Steps:
        p = torch.where(keys, share, s.p)
        return replace(s, p=p, p_dv=p)

    count = keys.sum(-1, keepdim=True).clamp(min=1).double()
    yield "1", partial(weighing, torch.ones_like(count))
    yield "1 over the number of keys", partial(weighing, 1.0 / count)


def _empty_give_to_sink(scene: Scene) -> Iterator[tuple[str, Change]]:
    """The weight of the sink where an LSE of 0, of the sink itself, or of what a row without keys holds is subtracted."""
    empty, sink, dlse = _empty(scene), scene.inputs.sink, scene.inputs.dlse
    if sink is None or not bool(empty.any()):
        return
    given = torch.zeros_like(empty, dtype=torch.float64) if dlse is None else torch.where(empty, dlse.double(), 0.0)

    def giving(weight: Tensor, s: Steps) -> Steps:
        assert s.sink_weight is not None
        return replace(s, sink_weight=torch.where(empty, weight, s.sink_weight), dlse=s.dlse + given)

    own = sink.double().view(1, -1, 1).expand(empty.shape).exp()
    for detail, weight in (("exp(sink), as of an LSE of 0", own), ("1", torch.ones_like(own))):
        if not bool((weight * given == 0)[empty].all()):
            yield f"with the weight {detail}", partial(giving, weight)


def _padded_keys(scene: Scene) -> Iterator[Alternative]:
    """Exp(0 - LSE) of keys behind the last one is infinite, and times a row of zeros NaN."""
    if not has_gradients(scene) or scene.lse is None:
        return
    over = (scene.lse < -_LARGEST) & ~scene.truth.empty_rows
    length, whole = scene.at.keys[:, None, :], scene.inputs.visible is None
    for size in tiles(scene):
        rows = (over & (length % size != 0)).unsqueeze(-1)
        if not bool(rows.any()):
            continue

        def finish(found: Expectations, rows: Tensor = rows) -> Expectations:
            x = found.get("dq")
            return found if x is None else found | {"dq": x.not_finite(rows) if whole else x.maybe_lost(rows)}

        yield Alternative(finish=finish, detail=f"tiles of {size} keys")


def _factor(scene: Scene) -> Iterator[Alternative]:
    """Kept pairs times 1 - p, 1 / p or p in place of 1 / (1 - p)."""
    p = scene.case.dropout
    for words, by in (("1 - p", 1.0 - p), ("1 / p", 1.0 / p), ("p", p)) if p else ():
        ratio = by * (1.0 - p)
        if ratio == 1.0:
            continue

        def finish(found: Expectations, ratio: float = ratio) -> Expectations:
            return {name: x.times(ratio) if name == "o" else x for name, x in found.items()}

        def steps(s: Steps, ratio: float = ratio) -> Steps:
            return replace(s, kept=s.kept * ratio, dp=s.dp * ratio, dp_size=s.dp_size * ratio)

        yield Alternative(finish=finish, steps=steps, detail=f"by {words}")


def _other_draws(scene: Scene) -> Iterator[Alternative]:
    """The draws of the call before or after."""
    if scene.case.dropout and scene.case.seq_q and scene.case.seq_k:
        p = scene.problem
        for detail, changed in (
            ("the next offset", {"offset": p.dropout_offset + 1}),
            ("the next seed", {"seed": p.dropout_seed + 1}),
            ("four offsets on", {"offset": p.dropout_offset + 4}),
        ):
            yield Alternative(inputs=replace(scene.inputs, keep=drawn(scene, **changed)), detail=detail)


def _of_dp(scene: Scene) -> Iterator[tuple[str, Change]]:
    """DP keeps what was dropped, with the factor."""
    p = scene.case.dropout
    if p:
        yield "", lambda s: replace(s, dp=(s.do @ s.v.mT) / (1.0 - p), dp_size=(s.do.abs() @ s.v.abs().mT) / (1.0 - p))


EMPTY_GRADIENTS = (
    Semantics(
        name="empty-rows-nan-in-backward",
        sentence="rows that see no key make NaN in the backward: -inf minus -inf in the exponent",
        build=_empty_nan,
        outputs=("dq", "dk", "dv"),
    ),
    Semantics(
        name="empty-rows-weigh-in-backward",
        sentence="rows that see no key weigh in the gradients: their logits and their LSE are one finite number",
        build=by_steps(_empty_weigh),
        outputs=(*OF_DS, "dv"),
    ),
    Semantics(
        name="empty-rows-in-dsink",
        sentence="rows that see no key give what they get through the LSE to the gradient of the sink",
        build=by_steps(_empty_give_to_sink),
        outputs=("dsink",),
    ),
    Semantics(
        name="padded-keys-overflow-in-backward",
        sentence="the weight exp(0 - LSE) of a padded key is infinite in the backward, and times 0 it is NaN",
        build=_padded_keys,
        outputs=("dq",),
    ),
    Semantics(
        name="dropout-factor-wrong",
        sentence="kept pairs are multiplied by another factor than 1 / (1 - p)",
        build=_factor,
        outputs=("o", *OF_DS, "dv"),
    ),
    Semantics(
        name="dropout-of-another-call",
        sentence="dropout draws the pairs of another call",
        build=_other_draws,
    ),
    Semantics(
        name="dropout-missing-in-dp",
        sentence="dropped pairs are kept in dP, with the factor 1 / (1 - p)",
        build=by_steps(_of_dp),
        outputs=OF_DS,
    ),
)
