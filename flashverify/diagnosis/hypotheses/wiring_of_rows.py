"""Wrong wiring of what belongs to a row of a head: Q, terms, positions, dO and statistics of another sequence, head or row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypotheses.row_places import folds, head_places, own_places, row_places, taken
from flashverify.diagnosis.hypotheses.step_builds import has_gradients
from flashverify.diagnosis.hypotheses.terms import split_biases, with_biases
from flashverify.diagnosis.hypotheses.wiring import stored
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import with_parts
from flashverify.outputs import FORWARD, OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypotheses.row_places import Place
    from flashverify.diagnosis.observation import Scene

    Places = Callable[[Scene], Iterator[tuple[str, Place]]]
    Build = Callable[[Scene], Iterator[Alternative]]

__all__ = ["WIRING_OF_ROWS"]

_NAMED = ("the first head of its group", "the head with the number of its kv head")
"""Heads whose bias or sink has a name of its own."""
_FEW = 6
"""Other heads that are asked in the backward, where each costs a backward."""


def _queries(scene: Scene) -> Iterator[Alternative]:
    """All channels of Q, or of a latent cache those that its values lack, or those that they have."""
    q, dv = scene.inputs.q, scene.case.dim_v
    channel = torch.arange(q.shape[-1])
    parts = [("", channel >= 0)]
    if dv < len(channel):
        parts += [(f"in the channels from {dv} on, ", channel >= dv), (f"in the first {dv} channels, ", channel < dv)]
    for words, place in row_places(scene):
        moved = taken(q, place)
        for which, part in parts:
            detail = f"{which.replace(str(dv), 'Dv')}{words}"
            yield Alternative(inputs=replace(scene.inputs, q=torch.where(part, moved, q)), detail=detail)


def _slopes(scene: Scene) -> Iterator[Alternative]:
    """The slope of another head, with the row's own distances."""
    bias, alibi = split_biases(scene)
    if alibi is None or scene.problem.slopes is None:
        return
    b, _, i = own_places(scene)
    for words, (_, head, _) in (*folds(scene), *head_places(scene)):
        term = taken(alibi.expand(-1, scene.case.heads_q, -1, -1), (b, head, i))
        yield Alternative(inputs=with_biases(scene, bias, term), detail=words)


def _positions(scene: Scene) -> Iterator[Alternative]:
    """The position of another row in the mask and in distances."""
    bias, alibi = split_biases(scene)
    b, h, _ = own_places(scene)
    if (scene.inputs.visible is None and alibi is None) or scene.problem.relative_bias is not None:
        return

    def of_row(x: Tensor | None, row: Tensor) -> Tensor | None:
        return None if x is None else taken(x, (b, h, row))

    for words, (_, _, row) in folds(scene):
        inputs = with_biases(scene, bias, of_row(alibi, row))
        yield Alternative(inputs=replace(inputs, visible=of_row(inputs.visible, row)), detail=words)


def _bias(scene: Scene) -> Iterator[Alternative]:
    """The bias of another sequence, head or row."""
    bias, alibi = split_biases(scene)
    if bias is None or scene.case.mask.packed is not None:
        return
    for words, place in row_places(scene):
        moved = taken(bias, place)
        if words not in _NAMED and not torch.equal(moved, bias.expand_as(moved)):
            yield Alternative(inputs=with_biases(scene, moved, alibi), detail=words)


def _sinks(scene: Scene) -> Iterator[Alternative]:
    sink = scene.inputs.sink
    for words, (_, head, _) in head_places(scene) if sink is not None else ():
        if words in _NAMED:
            continue
        yield Alternative(inputs=replace(scene.inputs, sink=sink[head[0, :, 0]]), detail=words)  # type: ignore[index]


def _do(scene: Scene) -> Iterator[Alternative]:
    """DO of another place, with the delta that belongs to it, or with the right one."""
    i, o = scene.inputs, scene.o
    if i.do is None or not has_gradients(scene):
        return
    for words, place in row_places(scene, _FEW):
        moved = taken(i.do, place)
        yield Alternative(inputs=replace(i, do=moved), detail=words)
        if o is not None:
            kept = o.double().masked_fill(scene.truth.empty_rows.unsqueeze(-1), 0.0)
            shift = ((moved.double() - i.do.double()) * kept).sum(-1)
            given = replace(i, do=moved, dlse=shift if i.dlse is None else i.dlse.double() + shift)
            yield Alternative(inputs=given, detail=f"{words}, but for delta")


def _dlse(scene: Scene) -> Iterator[Alternative]:
    i = scene.inputs
    for words, place in row_places(scene, _FEW) if i.dlse is not None and has_gradients(scene) else ():
        yield Alternative(inputs=replace(i, dlse=taken(i.dlse, place)), detail=words)  # type: ignore[arg-type]


def _lse(scene: Scene) -> Iterator[Alternative]:
    """The LSE that the backward reads."""
    if scene.lse is None or not has_gradients(scene):
        return
    for words, place in row_places(scene, _FEW):

        def given(o: Tensor, lse: Tensor, place: Any = place) -> tuple[Tensor, Tensor]:
            moved = taken(lse, place)
            return o, torch.where(torch.isfinite(moved), moved, lse)

        yield Alternative(given=given, detail=words)


def _delta(scene: Scene) -> Iterator[Alternative]:
    for words, place in row_places(scene, _FEW) if has_gradients(scene) else ():
        yield Alternative(
            steps=lambda s, place=place: replace(s, delta=taken(s.delta, place), delta_size=taken(s.delta_size, place)),
            detail=words,
        )


def _stored_lse(scene: Scene, own: Tensor) -> Iterator[tuple[Tensor, str]]:
    for words, place in row_places(scene):
        yield taken(own, place), words


def _lengths(scene: Scene) -> Iterator[Alternative]:
    """The number of keys that another program of the grid has."""
    case = scene.case
    if case.mask.key_lengths is None or case.mask.packed is not None:
        return
    b, h = torch.meshgrid(torch.arange(case.batch), torch.arange(case.heads_q), indexing="ij")
    group, lengths = scene.group, torch.tensor(case.mask.key_lengths)
    for words, number in (
        ("the head", h),
        ("the kv head", h // group),
        ("sequence * Hq + head", b * case.heads_q + h),
        ("(sequence * Hq + head) // group", (b * case.heads_q + h) // group),
        ("(sequence * Hq + head) // Hkv", (b * case.heads_q + h) // case.heads_kv),
    ):
        moved = lengths[number % case.batch]
        if not torch.equal(moved, lengths[b]):
            part = scene.at.key[:, None, None, :] < moved[:, :, None, None]
            detail = f"that with the number of {words}, modulo the number of sequences"
            yield Alternative(inputs=raw(scene, with_parts(scene, keys=part)), detail=detail)


WIRING_OF_ROWS = (
    Semantics(
        name="key-lengths-of-other-programs",
        sentence="a head has the number of keys of another sequence",
        build=_lengths,
        one_way=True,
    ),
    Semantics(
        name="slopes-of-other-rows",
        sentence="a row has the slope of ALiBi of the head of another one",
        build=_slopes,
        one_way=True,
    ),
    Semantics(name="sinks-of-other-heads", sentence="a head has the sink of another one", build=_sinks, one_way=True),
    Semantics(name="bias-of-other-rows", sentence="a row has the bias of another one", build=_bias, one_way=True),
    Semantics(
        name="positions-of-other-rows",
        sentence="a row has the position of another one in the mask and in distances",
        build=_positions,
        one_way=True,
    ),
    Semantics(
        name="queries-of-other-rows",
        sentence="the forward reads Q of another head or row",
        build=_queries,
        outputs=FORWARD,
        one_way=True,
    ),
    Semantics(
        name="backward-queries-of-other-rows",
        sentence="the backward reads Q of another head or row",
        build=lambda scene: _queries(scene) if has_gradients(scene) else iter(()),
        outputs=(*OF_DS, "dv"),
        one_way=True,
    ),
    Semantics(
        name="backward-do-of-other-rows",
        sentence="the backward reads dO of another head or row",
        build=_do,
        outputs=("delta", *OF_DS, "dv"),
        one_way=True,
    ),
    Semantics(
        name="dlse-of-other-rows",
        sentence="the gradient through the LSE is that of another head or row",
        build=_dlse,
        outputs=("delta", *OF_DS, "dsink"),
        one_way=True,
    ),
    Semantics(
        name="backward-lse-of-other-rows",
        sentence="the backward reads the LSE of another head or row",
        build=_lse,
        outputs=(*OF_DS, "dv", "dsink"),
        one_way=True,
    ),
    Semantics(
        name="backward-delta-of-other-rows",
        sentence="the backward reads delta of another head or row",
        build=_delta,
        outputs=("delta", *OF_DS, "dsink"),
        one_way=True,
    ),
    Semantics(
        name="lse-of-other-rows",
        sentence="the LSE of a row is that of another head or row",
        build=stored(_stored_lse),
        one_way=True,
    ),
)
