"""Wrong semantics of rows that see no key, of padded rows, and of partial results without keys."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.merging import partials
from flashverify.diagnosis.hypothesis import TILES, Alternative, Expectations, Finish, Semantics
from flashverify.diagnosis.mask_tensors import row_tiles, tiles
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["ROWS"]

_VERY_NEGATIVE = -1e4
_ROUNDING = 2.0**-20
"""Of the number, what the LSE of a row may be off by."""


def _empty_nan(scene: Scene) -> Iterator[Alternative]:
    """0 / 0, or -inf - -inf, in some rows without keys, or in all."""
    empty = scene.truth.empty_rows

    def finish(found: Expectations) -> Expectations:
        where = {"o": empty.unsqueeze(-1), "lse": empty}
        return {name: x.maybe_lost(where[name]) if name in where else x for name, x in found.items()}

    if bool(empty.any()):
        yield Alternative(finish=finish)


def _empty_averages(scene: Scene) -> Iterator[Alternative]:
    """O is the mean of V over all keys of the tiles that the row's tile visits, keys behind the last one counting as 0."""
    empty, case, i = scene.truth.empty_rows, scene.case, scene.inputs
    yield from _drowned(scene)
    if not bool(empty.any()) or i.visible is None or not case.seq_k:
        return
    visible = i.visible.expand(case.batch, case.heads_q, case.seq_q, case.seq_k)
    own = (scene.at.row_sequence[:, :, None] == scene.at.key_sequence[:, None, :])[:, None]
    inside = own & (scene.at.key < scene.at.key_limit)[:, None, None, :]
    v = i.v.double().repeat_interleave(scene.group, 1)
    key = scene.at.key[:, None, None, :]
    lse = scene.outputs.get("lse", torch.zeros(empty.shape, dtype=torch.float64))
    very_low = (lse, torch.where(empty & torch.isfinite(lse) & (lse < _VERY_NEGATIVE), 0.0, -1.0))
    for size in tiles(scene):
        for rows in TILES:
            reached = row_tiles(scene, visible, rows)
            first = key.expand(reached.shape).masked_fill(~reached, 1 << 40).amin(-1, keepdim=True) // size * size
            last = (key + 1).where(reached, 0).amax(-1, keepdim=True)
            last = -(-last // size) * size
            taken = (inside & (key >= first) & (key < last)).double()
            slots = (last - first).clamp(min=1).double()
            weights = taken / slots
            mean, spread = weights @ v, weights @ v.abs()
            near = torch.where(empty.unsqueeze(-1), 2.0**-7 * spread, -1.0)

            def finish(found: Expectations, mean: Tensor = mean, near: Tensor = near) -> Expectations:
                if "o" not in found:
                    return found
                return {"o": replace(found["o"], other=(mean, near)), "lse": replace(found["lse"], other=very_low)}

            yield Alternative(finish=finish)


def _drowned(scene: Scene) -> Iterator[Alternative]:
    """Rows whose own logits lie below the number have it as their LSE, as the hidden keys of their tiles do, whose values they average."""
    wrong, lse = scene.failures.get("lse"), scene.outputs.get("lse")
    if wrong is None or lse is None or not bool(wrong.any()):
        return
    exact, unit = scene.truth.forward()["lse"][0], scene.unit
    number = lse[wrong].amax()
    near = _ROUNDING * number.abs()
    below = torch.isfinite(exact) & (exact < number - near)
    drowned = below & wrong & ((lse - number).abs() <= near)
    if bool(torch.isfinite(number)) and float(number) * unit < _VERY_NEGATIVE and torch.equal(below, drowned):
        there = torch.where(below, near, -1.0)

        def finish(found: Expectations) -> Expectations:
            if "o" not in found:
                return found
            lse = replace(found["lse"], other=(number.expand_as(there), there))
            return {"o": found["o"].open(below.unsqueeze(-1)), "lse": lse}

        yield Alternative(finish=finish)


def _empty_lse(value: float) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        empty = scene.truth.empty_rows
        if not bool(empty.any()) or scene.contract.empty_row_lse == value or "lse" not in scene.right:
            return

        def finish(found: Expectations) -> Expectations:
            return found | ({"lse": found["lse"].pinned(empty, value)} if "lse" in found else {})

        yield Alternative(finish=finish)

    return build


def _with_delta(scene: Scene, finish: Finish, found: Expectations) -> Expectations:
    """A row that is not known by its LSE to be empty has a delta: minus its dLSE where that is subtracted."""
    dlse = scene.inputs.dlse
    if "delta" in found and dlse is not None:
        delta = found["delta"]
        near = torch.where(scene.truth.empty_rows, _ROUNDING * dlse.double().abs(), -1.0)
        found = found | {"delta": replace(delta, other=(-dlse.double(), near.expand_as(delta.value)))}
    return finish(found)


def _plus_infinity(scene: Scene) -> Iterator[Alternative]:
    """+inf as the LSE of a partial without keys: the merge gives it all the weight, and inf - inf is NaN."""
    for each in _empty_lse(float("inf"))(scene):
        yield replace(each, finish=partial(_with_delta, scene, each.finish or (lambda found: found)))
    for every in partials(scene):
        some = (every == -torch.inf).any(0)
        if not bool(some.any()):  # cut so, every partial has keys and the result is right
            yield Alternative()
            continue

        def finish(found: Expectations, some: Tensor = some) -> Expectations:
            where = {"o": some.unsqueeze(-1), "lse": some}
            return {name: x.not_finite(where[name]) if name in where else x for name, x in found.items()}

        yield Alternative(finish=finish)


def _padded_rows(scene: Scene) -> Iterator[Alternative]:
    lengths = scene.case.mask.query_lengths
    if lengths is None or scene.contract.padding != "written":
        return
    beyond = (scene.at.row >= scene.at.rows)[:, None, :]

    def finish(found: Expectations) -> Expectations:
        return {name: x.whatever(beyond.unsqueeze(-1)) if name in ("o", "dq") else x for name, x in found.items()}

    yield Alternative(finish=finish)


ROWS = (
    Semantics(
        name="empty-rows-nan",
        sentence="rows that see no key come out as NaN: 0 / 0, or -inf minus -inf",
        build=_empty_nan,
        outputs=FORWARD,
    ),
    Semantics(
        name="empty-rows-average",
        sentence="rows that see no key average the values of keys that they do not see: a finite number stands for -inf",
        build=_empty_averages,
        outputs=FORWARD,
    ),
    Semantics(
        name="empty-rows-lse-zero",
        sentence="the LSE of rows that see no key is 0",
        build=_empty_lse(0.0),
        outputs=("lse",),
    ),
    Semantics(
        name="empty-lse-plus-infinity",
        sentence="the LSE of a row without keys, or of a partial result without keys, is +inf",
        build=_plus_infinity,
        outputs=(*FORWARD, "delta"),
    ),
    Semantics(
        name="padded-rows-not-cleared",
        sentence="rows past their query length are not cleared; every other element is right",
        build=_padded_rows,
        outputs=("o", "dq"),
    ),
)
