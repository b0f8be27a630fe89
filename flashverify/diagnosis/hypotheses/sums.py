"""Wrong semantics of the sums of the backward: over a group of heads, and of the gradients of a sink and a bias."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.expected import Expected
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["SUMS"]


def _member(which: int, names: tuple[str, ...]) -> Callable[[Scene], Iterator[Alternative]]:
    """Of a group of query heads only one member's gradient reaches its kv head."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, group = scene.inputs, scene.group
        if i.do is None or group == 1:
            return

        def one(x: Tensor) -> Tensor:
            return x[:, torch.arange(which % group, x.shape[1], group)]

        def finish(found: Expectations) -> Expectations:
            for name in ("dk", "dv"):
                if name in found and name in names:
                    x = found[name]
                    found[name] = Expected(
                        value=one(x.value), total=one(x.total), overflow=one(x.overflow), zero=x.zero
                    )
                elif name in found:
                    found[name] = scene.right[name]
            return found

        expanded = replace(i, k=i.k.repeat_interleave(group, 1), v=i.v.repeat_interleave(group, 1))
        yield Alternative(inputs=expanded, finish=finish)

    return build


def _dsink(kind: str) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        i = scene.inputs
        if i.sink is None or i.do is None:
            return
        if kind == "sign":
            yield Alternative(finish=lambda found: {n: x.times(-1.0) if n == "dsink" else x for n, x in found.items()})
        elif kind == "dlse" and i.dlse is not None:
            yield Alternative(inputs=replace(i, dlse=None))
        elif kind == "batch" and scene.case.batch > 1:
            first = replace(i, do=_first(i.do), dlse=None if i.dlse is None else _first(i.dlse))
            yield Alternative(inputs=first)

    return build


def _first(x: Tensor) -> Tensor:
    """Zero but for the first sequence of the batch."""
    kept = torch.zeros_like(x)
    kept[:1] = x[:1]
    return kept


def _dbias_of_one(which: int) -> Callable[[Scene], Iterator[Alternative]]:
    """The gradient of a bias is that of one of the heads and sequences that share it."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, case = scene.inputs, scene.case
        if i.bias_shape is None or i.do is None:
            return
        shared = [axis for axis in range(2) if i.bias_shape[axis] == 1 and (case.batch, case.heads_q)[axis] > 1]
        if not shared:
            return

        def one(x: Tensor) -> Tensor:
            for axis in shared:
                x = x.narrow(axis, x.shape[axis] - 1 if which < 0 else which, 1)
            return x

        def finish(found: Expectations) -> Expectations:
            if "dbias" not in found:
                return found
            x = found["dbias"]
            return found | {"dbias": Expected(value=one(x.value), total=one(x.total), overflow=one(x.overflow))}

        whole = (case.batch, case.heads_q, case.seq_q, case.seq_k)
        yield Alternative(inputs=replace(i, bias_shape=whole), finish=finish)

    return build


SUMS = (
    Semantics(
        name="group-first-member-only",
        sentence="of a group of query heads only the first one's gradient reaches the kv head",
        build=_member(0, ("dk", "dv")),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="group-last-member-only",
        sentence="of a group of query heads only the last one's gradient reaches the kv head",
        build=_member(-1, ("dk", "dv")),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="dsink-sign",
        sentence="the gradient of the sink has the wrong sign",
        build=_dsink("sign"),
        outputs=("dsink",),
    ),
    Semantics(
        name="dsink-without-dlse",
        sentence="the gradient of the sink lacks its share of the gradient through the LSE",
        build=_dsink("dlse"),
        outputs=("dsink",),
    ),
    Semantics(
        name="dsink-first-sequence",
        sentence="the gradient of the sink is that of the first sequence of the batch",
        build=_dsink("batch"),
        outputs=("dsink",),
    ),
    Semantics(
        name="dbias-last-head-only",
        sentence="the gradient of a shared bias is that of the last head or sequence, not the sum",
        build=_dbias_of_one(-1),
        outputs=("dbias",),
    ),
    Semantics(
        name="dbias-first-head-only",
        sentence="the gradient of a shared bias is that of the first head or sequence, not the sum",
        build=_dbias_of_one(0),
        outputs=("dbias",),
    ),
)
