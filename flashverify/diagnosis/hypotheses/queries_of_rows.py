"""Wrong semantics of Q that is read of another row of the same sequence and head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypotheses.row_places import own_places, taken
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypotheses.row_places import Place
    from flashverify.diagnosis.hypothesis import Finish
    from flashverify.diagnosis.observation import Scene

__all__ = ["QUERIES_OF_ROWS"]


def _other_rows(scene: Scene) -> Iterator[tuple[str, Place]]:
    """Other rows of the same sequence and head."""
    at, (b, h, i) = scene.at, own_places(scene)
    first = (i[:1, :1] - at.row[:, None]).expand_as(i)  # where the sequence begins in the buffer
    last = first + (at.rows[:, None] - 1).clamp(min=0)
    behind = scene.case.seq_q - at.rows if scene.case.mask.packed is None else torch.zeros_like(at.rows)
    for words, row in (
        ("the first row of its sequence", first),
        ("the last row of its sequence", last),
        ("the row before, the first one's own", torch.maximum(i - 1, first)),
        ("the row behind, the last one's own", torch.minimum(i + 1, last)),
        ("the row as far from the last one", first + last - i),
        ("the row as many rows later as there is padding, as if that stood in front", i + behind[:, None]),
    ):
        moved = torch.where(i <= last, row, i).clamp(0, scene.case.seq_q - 1)
        if not torch.equal(moved, i):
            yield words, (b, h, moved)


def _queries(scene: Scene) -> Iterator[Alternative]:
    """Another row may be padding; nothing is asked of rows whose Q is not finite then."""
    q, dv = scene.inputs.q, scene.case.dim_v
    padded = scene.case.mask.query_lengths is not None and scene.case.quantised is None
    stored = raw(scene, scene.inputs).q if padded else q
    lost = ~torch.isfinite(scene.problem.q).all(-1) if padded else None
    rest = torch.arange(q.shape[-1]) >= dv
    for words, place in _other_rows(scene) if scene.case.seq_q > 1 else ():
        moved, finish = taken(stored, place), None if lost is None else _open_rows(taken(lost, place))
        yield Alternative(inputs=replace(scene.inputs, q=moved), detail=words, finish=finish)
        if bool(rest.any()):
            inputs = replace(scene.inputs, q=torch.where(rest, moved, q))
            yield Alternative(inputs=inputs, detail=f"in the channels from Dv on, {words}", finish=finish)


def _open_rows(rows: Tensor) -> Finish | None:
    where = {"o": rows.unsqueeze(-1), "lse": rows}
    return (lambda found: {name: x.open(where[name]) for name, x in found.items()}) if bool(rows.any()) else None


QUERIES_OF_ROWS = (
    Semantics(
        name="queries-of-rows-of-their-head",
        sentence="the forward reads Q of another row of the same sequence and head",
        build=_queries,
        outputs=FORWARD,
        one_way=True,
    ),
)
