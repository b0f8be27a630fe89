"""Wrong semantics of dropout."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.outputs import FORWARD, OF_DS
from flashverify.truth import Inputs, kept_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["DROPOUT", "drawn"]

_ROUNDING = 2.0**-20
"""Of a sum of weights in fp32, relative."""


def drawn(scene: Scene, **changed: Any) -> Tensor:
    """The kept pairs, `[B, Hq, Sq, Sk]`, with arguments of the draw exchanged."""
    at, p, case = scene.at, scene.problem, scene.case
    given: dict[str, Any] = {
        "seed": p.dropout_seed,
        "offset": p.dropout_offset,
        "p": case.dropout,
        "heads": case.heads_q,
        "sequence": at.row_sequence,
        "row": at.row,
        "key": at.key,
    }
    found = kept_pairs(**{**given, **changed})
    kept: Tensor = found(slice(0, case.seq_q), slice(0, case.seq_k))
    return kept


def _keep(change: Callable[[Scene], Tensor | None]) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.case.dropout and scene.case.seq_q and scene.case.seq_k:
            kept = change(scene)
            if kept is not None:
                yield Alternative(inputs=replace(scene.inputs, keep=kept))

    return build


def _axes(scene: Scene) -> Tensor:
    """Counter (i, j // 4) in place of (j // 4, i): drawn row by row, of the row j // 4 and the keys 4 i + j % 4."""
    at, case = scene.at, scene.case
    rows = []
    for n in range(case.seq_q):
        quads = torch.arange(int(at.key.max()) // 4 + 1).expand(case.batch, -1)
        place = 4 * at.row[:, n : n + 1] + torch.arange(4)
        drawn = _drawn_at(scene, at.row_sequence[:, n : n + 1].expand_as(quads), quads, place)
        flat = drawn.flatten(-2)  # [B, Hq, 4 quads]
        rows.append(flat.gather(-1, at.key[:, None, :].expand(-1, case.heads_q, -1)))
    return torch.stack(rows, 2)


def _drawn_at(scene: Scene, sequence: Tensor, row: Tensor, key: Tensor) -> Tensor:
    p = scene.problem
    found = kept_pairs(
        seed=p.dropout_seed,
        offset=p.dropout_offset,
        p=scene.case.dropout,
        heads=scene.case.heads_q,
        sequence=sequence,
        row=row,
        key=key,
    )
    kept: Tensor = found(slice(0, row.shape[1]), slice(0, key.shape[1]))
    return kept


def _stream(stride: Callable[[Scene], int]) -> Callable[[Scene], Tensor | None]:
    """Stream b stride + h in place of b Hq + h."""

    def change(scene: Scene) -> Tensor | None:
        if stride(scene) == scene.case.heads_q:
            return None
        sequence = scene.at.row_sequence
        found = [drawn(scene, heads=1, sequence=sequence * stride(scene) + h) for h in range(scene.case.heads_q)]
        return torch.cat(found, 1)

    return change


def _half(scene: Scene) -> Tensor:
    """Inverted where the key is even."""
    kept = drawn(scene)
    return kept ^ (scene.at.key % 2 == 0)[:, None, None, :]


def _factor(scene: Scene) -> Iterator[Alternative]:
    """1 / (1 - p) missing, or twice there, in O and dV."""
    p = scene.case.dropout
    if not p:
        return
    yield from _times(1.0 - p, "missing")
    yield Alternative(inputs=replace(scene.inputs, dropout=0.0), detail="missing everywhere")
    i, o = scene.inputs, scene.o
    if i.do is not None and o is not None:
        yield Alternative(inputs=_weaker(i, o, 1.0 - p), detail="missing, in dP")


def _factor_twice(scene: Scene) -> Iterator[Alternative]:
    p = scene.case.dropout
    if not p:
        return
    yield from _times(1.0 / (1.0 - p), "twice")
    i, o = scene.inputs, scene.o
    if i.do is not None and o is not None:
        yield Alternative(inputs=_weaker(i, o, 1.0 / (1.0 - p)), detail="twice, in dP")


def _times(factor: float, word: str) -> Iterator[Alternative]:
    def finish(found: Expectations) -> Expectations:
        return {name: x.times(factor) if name in ("o", "dv") else x for name, x in found.items()}

    yield Alternative(finish=finish, detail=word)


def _weaker(i: Inputs, o: Tensor, factor: float) -> Inputs:
    """DP times `factor`, delta as it was: dO times it, and what delta loses given through dLSE."""
    assert i.do is not None
    delta = (i.do.double() * o).sum(-1)
    dlse = (factor - 1.0) * delta
    return replace(i, do=i.do.double() * factor, dlse=dlse if i.dlse is None else i.dlse.double() + dlse)


def _and(visible: Any, keep: Tensor) -> Tensor:
    return keep if visible is None else visible & keep


def _no_delta(scene: Scene) -> Iterator[Alternative]:
    """DS = 0 at dropped pairs."""
    i, o = scene.inputs, scene.o
    if not scene.case.dropout or i.do is None or o is None or scene.lse is None:
        return
    factor = 1.0 / (1.0 - scene.case.dropout)
    weaker = _weaker(i, o, factor)
    yield Alternative(inputs=replace(weaker, visible=_and(i.visible, i.keep), keep=None, dropout=0.0))


def _before(scene: Scene) -> Iterator[Alternative]:
    i, p = scene.inputs, scene.case.dropout
    if not p:
        return
    inputs = replace(i, visible=_and(i.visible, i.keep), keep=None, dropout=0.0)
    natural = scene.truth.forward()["lse"][0] * scene.unit
    largest = i.v.double().abs().amax() if i.v.numel() else torch.zeros((), dtype=torch.float64)

    def finish(found: Expectations, factor: float = 1.0) -> Expectations:
        if "o" not in found:
            return found
        o, lse = found["o"].times(factor), found["lse"]
        # a sum of all weights from which the dropped ones are taken away is rounded as large as it was; -inf - -inf is no gap
        lost = _ROUNDING * (natural - lse.value * scene.unit).nan_to_num(0.0, math.inf, 0.0).exp()
        share = (lost * largest * factor).unsqueeze(-1)
        o = replace(o, total=o.total + share.where(lost.unsqueeze(-1) < 0.5, math.inf))
        return {"o": o, "lse": replace(lse, total=lse.total + lost.where(lost < 0.5, math.inf) / scene.unit)}

    yield Alternative(inputs=inputs, finish=finish, detail="without the factor")
    yield Alternative(inputs=inputs, finish=partial(finish, factor=1.0 / (1.0 - p)), detail="with the factor")


def _ignored(scene: Scene) -> Iterator[Alternative]:
    if scene.case.dropout:
        yield Alternative(inputs=replace(scene.inputs, keep=None, dropout=0.0))


DROPOUT = (
    Semantics(name="dropout-ignored", sentence="nothing is dropped", build=_ignored),
    Semantics(
        name="dropout-offset-ignored",
        sentence="dropout draws the same pairs at every offset",
        build=_keep(lambda scene: drawn(scene, offset=0)),
    ),
    Semantics(
        name="dropout-seed-cut",
        sentence="dropout uses the lower 32 bits of its seed only",
        build=_keep(lambda scene: drawn(scene, seed=scene.problem.dropout_seed & 0xFFFFFFFF)),
    ),
    Semantics(
        name="dropout-axes-exchanged",
        sentence="rows and keys are exchanged in the counter of the dropout draws",
        build=_keep(_axes),
    ),
    Semantics(
        name="dropout-stream-by-kv-heads",
        sentence="the dropout draws are those of another head: sequences are counted by kv heads, not query heads",
        build=_keep(_stream(lambda scene: scene.case.heads_kv)),
    ),
    Semantics(
        name="dropout-stream-of-head",
        sentence="every sequence gets the dropout draws of the first one",
        build=_keep(_stream(lambda _scene: 0)),
    ),
    Semantics(
        name="dropout-inverted",
        sentence="the pairs to drop are kept and the others dropped",
        build=_keep(lambda scene: ~drawn(scene)),
    ),
    Semantics(
        name="dropout-inverted-at-even-keys",
        sentence="at even keys the pairs to drop are kept and the others dropped",
        build=_keep(_half),
    ),
    Semantics(
        name="dropout-factor-missing",
        sentence="the factor 1 / (1 - p) of dropout is missing",
        build=_factor,
        outputs=("o", *OF_DS, "dv"),
    ),
    Semantics(
        name="dropout-factor-twice",
        sentence="the factor 1 / (1 - p) of dropout is applied twice",
        build=_factor_twice,
        outputs=("o", *OF_DS, "dv"),
    ),
    Semantics(
        name="dropout-hides-delta",
        sentence="the logit of a dropped pair gets no gradient, although it is in the normaliser",
        build=_no_delta,
        outputs=OF_DS,
    ),
    Semantics(
        name="dropout-before-normaliser",
        sentence="dropped pairs are left out of the normaliser too",
        build=_before,
        outputs=FORWARD,
    ),
)
