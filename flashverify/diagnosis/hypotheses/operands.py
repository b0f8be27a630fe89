"""Wrong semantics of which head or sequence one operand comes from: Q of the forward, lengths, and what the backward reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import with_parts
from flashverify.outputs import FORWARD, OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypotheses.step_builds import Changes
    from flashverify.diagnosis.observation import Scene

    Place = Callable[[Tensor], Tensor]

__all__ = ["OPERANDS"]

_PLACES: dict[str, tuple[str, int, Place]] = {
    "next-head": ("the next head", 1, lambda x: x.roll(-1, 1)),
    "first-head": ("the first head", 1, lambda x: x[:, :1].expand_as(x)),
    "next-sequence": ("the next sequence", 0, lambda x: x.roll(-1, 0)),
    "first-sequence": ("the first sequence", 0, lambda x: x[:1].expand_as(x)),
}
_OPERANDS = (
    ("q", "the queries of", (*OF_DS, "dv")),
    ("k", "the keys of", (*OF_DS, "dv")),
    ("v", "the values of", OF_DS),
    ("do", "dO of", ("delta", *OF_DS, "dv")),
)
_STATISTICS = (("lse", "the LSE of", (*OF_DS, "dv", "dsink")), ("delta", "delta of", ("delta", *OF_DS, "dsink")))


def _moved(name: str, axis: int, place: Place, *, backward: bool) -> Callable[[Scene], Iterator[Alternative]]:
    """An operand from another head or sequence."""

    def build(scene: Scene) -> Iterator[Alternative]:
        x = getattr(scene.inputs, name)
        if x is not None and x.shape[axis] > 1 and (scene.inputs.do is not None or not backward):
            changed: dict[str, Any] = {name: place(x)}
            yield Alternative(inputs=replace(scene.inputs, **changed))

    return build


def _do(axis: int, place: Place) -> Callable[[Scene], Iterator[Alternative]]:
    """DO from elsewhere, with the delta that belongs to it, or with the right one of a kernel that ran before."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, o = scene.inputs, scene.o
        if i.do is None or i.do.shape[axis] < 2:
            return
        moved = place(i.do)
        yield Alternative(inputs=replace(i, do=moved))
        if o is None:
            return
        kept = o.double().masked_fill(scene.truth.empty_rows.unsqueeze(-1), 0.0)
        shift = ((moved.double() - i.do.double()) * kept).sum(-1)
        yield Alternative(inputs=replace(i, do=moved, dlse=shift if i.dlse is None else i.dlse.double() + shift))

    return build


def _lse(axis: int, place: Place) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.inputs.do is None or scene.lse is None or scene.lse.shape[axis] < 2:
            return

        def given(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
            moved = place(lse)
            return o, torch.where(torch.isfinite(moved), moved, lse)

        yield Alternative(given=given)

    return build


def _delta(axis: int, place: Place) -> Callable[[Scene], Iterator[Alternative]]:
    """Delta of another row, which may be stored too."""

    def changes(scene: Scene) -> Changes:
        if scene.inputs.q.shape[axis] > 1:
            yield "", lambda s: replace(s, delta=place(s.delta), delta_size=place(s.delta_size))

    return by_steps(changes)


def _lengths(place: Place) -> Callable[[Scene], Iterator[Alternative]]:
    """The number of keys of another sequence."""

    def build(scene: Scene) -> Iterator[Alternative]:
        lengths = scene.case.mask.key_lengths
        if lengths is None or scene.case.mask.packed is not None:
            return
        own = torch.tensor(lengths)
        other = place(own)
        if bool((own == other).all()):
            return
        part = scene.at.key[:, None, None, :] < other.view(-1, 1, 1, 1)
        yield Alternative(inputs=raw(scene, with_parts(scene, keys=part)))

    return build


_STATISTIC_BUILDS = {"lse": _lse, "delta": _delta}
_KNOWN = ("backward-lse-of-next-head",)
"""Those that another file holds."""

OPERANDS = (
    *(
        Semantics(
            name=f"backward-{name}-of-{where}",
            sentence=f"the backward reads {words} {place[0]}",
            build=_do(*place[1:]) if name == "do" else _moved(name, *place[1:], backward=True),
            outputs=outputs,
        )
        for name, words, outputs in _OPERANDS
        for where, place in _PLACES.items()
    ),
    *(
        Semantics(
            name=f"backward-{name}-of-{where}",
            sentence=f"the backward reads {words} {place[0]}",
            build=_STATISTIC_BUILDS[name](*place[1:]),
            outputs=outputs,
        )
        for name, words, outputs in _STATISTICS
        for where, place in _PLACES.items()
        if f"backward-{name}-of-{where}" not in _KNOWN
    ),
    *(
        Semantics(
            name=f"queries-of-{where}",
            sentence=f"the forward reads the queries of {place[0]}",
            build=_moved("q", *place[1:], backward=False),
            outputs=FORWARD,
        )
        for where, place in _PLACES.items()
    ),
    Semantics(
        name="key-lengths-of-first-sequence",
        sentence="every sequence has the number of keys of the first one",
        build=_lengths(lambda x: x[:1].expand_as(x)),
    ),
    Semantics(
        name="key-lengths-of-next-sequence",
        sentence="a sequence has the number of keys of the next one",
        build=_lengths(lambda x: x.roll(-1)),
    ),
    Semantics(
        name="key-lengths-longest-for-all",
        sentence="every sequence has the number of keys of the longest one",
        build=_lengths(lambda x: x.amax().expand_as(x)),
    ),
)
