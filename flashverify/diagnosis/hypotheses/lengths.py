"""Wrong semantics of declared lengths, packed sequences and tails."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import parts, seen, tiles, with_parts
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

__all__ = ["LENGTHS", "raw"]


def _finite(x: Tensor | None) -> Tensor | None:
    """A tensor of the problem with what lies outside the lengths, in float64; 0 where it is not finite."""
    return None if x is None else torch.nan_to_num(x.double(), nan=0.0, posinf=0.0, neginf=0.0)


def raw(scene: Scene, inputs: Inputs) -> Inputs:
    """With the stored values of padding in place of zeros."""
    p = scene.problem
    q, k, v = _finite(p.q), _finite(p.k), _finite(p.v)
    assert q is not None
    assert k is not None
    assert v is not None
    return replace(inputs, q=q, k=k, v=v, do=_finite(p.do))


def _keys_by(by: int) -> Callable[[Scene], Iterator[Alternative]]:
    """The number of keys is wrong by `by`; the alignment is by the right number, or by the wrong one."""

    def build(scene: Scene) -> Iterator[Alternative]:
        at, case = scene.at, scene.case
        j = at.key[:, None, None, :]
        if by > 0 and (case.mask.key_lengths is None or not bool(torch.isfinite(scene.problem.k).all())):
            return
        part = j < at.key_limit[:, None, None, :] + by
        yield Alternative(inputs=raw(scene, with_parts(scene, keys=part)) if by > 0 else with_parts(scene, keys=part))

    return build


def _ignored(*names: str) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        mask = scene.case.mask
        there = {"keys": mask.key_lengths, "rows": mask.query_lengths}
        if all(there[name] is not None for name in names):
            yield Alternative(inputs=raw(scene, with_parts(scene, **dict.fromkeys(names))))
            if "keys" in names and mask.aligned_at_end and not mask.window:
                end = scene.at.row + scene.case.seq_k - scene.at.rows  # aligned by the room for keys
                causal = scene.at.key[:, None, None, :] <= end[:, None, :, None]
                yield Alternative(inputs=raw(scene, with_parts(scene, keys=None, causal=causal)))

    return build


def _zero_keys(scene: Scene) -> Iterator[Alternative]:
    """Keys up to the end of the tile join with q k = 0 and v = 0."""
    case = scene.case
    if case.mask.packed is not None:
        return
    for size in tiles(scene):
        extra = -case.seq_k % size
        inputs = _longer(scene, extra, size)
        if inputs is not None:
            yield Alternative(inputs=inputs, finish=_cut(case.seq_k), detail=f"up to a multiple of {size}")


def _longer(scene: Scene, extra: int, size: int) -> Inputs | None:
    """The problem with `extra` keys of zeros behind the last, of which a row sees those up to a multiple of `size`."""
    i, case, at = scene.inputs, scene.case, scene.at
    if i.keep is not None or case.mask.blocks is not None:
        return None
    found = parts(scene)
    limit = torch.tensor(case.keys_inside or (case.seq_k,) * case.batch).view(-1, 1, 1, 1)
    place = torch.arange(case.seq_k + extra).view(1, 1, 1, -1)
    position = (at.row + at.shift)[:, None, :, None]
    left, right = case.mask.window or (None, None)
    inside = place < -(-limit // size) * size
    if case.mask.causal is not None:
        inside = inside & (place <= position)
    if left is not None:
        inside = inside & (place >= position - left)
    if right is not None:
        inside = inside & (place <= position + right)
    inside = inside & found["rows"]
    old = torch.nn.functional.pad(seen(found).expand(case.batch, -1, -1, -1), (0, extra))
    tail = inside & (place >= limit)
    if "tree" in found or "bitmap" in found:
        return None

    def padded(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (0, 0, 0, extra))

    biases = tuple(torch.nn.functional.pad(b.double(), (0, extra)) if b.shape[-1] > 1 else b for b in i.biases)
    return replace(i.without_learned(), k=padded(i.k), v=padded(i.v), visible=old | tail, biases=biases)


def _cut(keys: int) -> Callable[[Expectations], Expectations]:
    """Gradients of the first `keys` keys."""

    def finish(found: Expectations) -> Expectations:
        for name in ("dk", "dv"):
            if name in found:
                x = found[name]
                found[name] = replace(
                    x,
                    value=x.value[:, :, :keys],
                    total=x.total[:, :, :keys],
                    overflow=x.overflow[:, :, :keys],
                    lost=None if x.lost is None else x.lost[:, :, :keys],
                    zero=None,
                )
        return found

    return finish


def _as_many_as_queries(scene: Scene) -> Iterator[Alternative]:
    """The number of keys is that of the queries; with fewer keys than queries what is read lies outside the tensors, and is not right."""
    case, mask = scene.case, scene.case.mask
    ends = mask.causal == "bottom-right"  # with as many keys as rows the last ones meet where the first ones do
    if mask.packed or mask.key_lengths is not None or mask.tree is not None or (ends and mask.window is not None):
        return
    outside = torch.tensor(case.seq_q > case.seq_k)

    def finish(found: Expectations) -> Expectations:
        return {
            n: x.unstored(outside.expand_as(x.value), scene.right[n], scene.outputs[n])
            for n, x in found.items()
            if n in scene.right
        }

    if case.seq_q != case.seq_k:
        key, row = scene.at.key[:, None, None, :], scene.at.row[:, None, :, None]
        diagonal = {"causal": key <= row} if ends else {}
        yield Alternative(inputs=with_parts(scene, as_queries=key < case.seq_q, **diagonal), finish=finish)


def _neighbours(scene: Scene) -> Iterator[Alternative]:
    """Packed sequences whose limits are lost: a row sees the keys of all."""
    packed = scene.case.mask.packed
    if packed is None or len(packed.lengths()) < 2:
        return
    inside = torch.arange(scene.case.seq_k) < packed.cu_k[-1]
    yield Alternative(inputs=with_parts(scene, sequence=inside.view(1, 1, 1, -1)))


def _from_query_table(scene: Scene) -> Iterator[Alternative]:
    """Keys, or keys and values, of a packed sequence are read from where its queries begin."""
    packed = scene.case.mask.packed
    if packed is None or packed.cu_q == packed.cu_k:
        return
    at = torch.arange(scene.case.seq_k)
    for (q0, _), (k0, k1) in zip(pairwise(packed.cu_q), pairwise(packed.cu_k), strict=True):
        at[k0:k1] = torch.arange(k1 - k0) + q0
    if int(at.max()) >= scene.case.seq_k:
        return
    stored = raw(scene, scene.inputs)
    yield Alternative(inputs=replace(scene.inputs, k=stored.k[:, :, at]), detail="of k")
    yield Alternative(inputs=replace(scene.inputs, v=stored.v[:, :, at]), detail="of v")
    yield Alternative(inputs=replace(scene.inputs, k=stored.k[:, :, at], v=stored.v[:, :, at]), detail="of k and v")


LENGTHS = (
    Semantics(
        name="last-key-missing",
        sentence="the last key of each sequence is left out",
        build=_keys_by(-1),
    ),
    Semantics(
        name="key-lengths-one-more",
        sentence="one key behind the declared key length takes part",
        build=_keys_by(1),
    ),
    Semantics(
        name="key-lengths-ignored",
        sentence="the key lengths are ignored: padded keys take part with what they hold",
        build=_ignored("keys"),
    ),
    Semantics(
        name="query-lengths-ignored",
        sentence="the query lengths are ignored: padded rows are computed like any other",
        build=_ignored("rows"),
    ),
    Semantics(
        name="keys-as-many-as-queries",
        sentence="the number of keys is taken to be that of the queries",
        build=_as_many_as_queries,
        outputs=FORWARD,
    ),
    Semantics(
        name="padded-keys-zero-logits",
        sentence="keys behind the last one, up to the end of the tile, join the softmax with q k = 0 and v = 0",
        build=_zero_keys,
    ),
    Semantics(
        name="packed-limits-ignored",
        sentence="the limits of packed sequences are ignored: a row sees the keys of its neighbours",
        build=_neighbours,
    ),
    Semantics(
        name="packed-keys-from-query-table",
        sentence="the keys of a packed sequence are read from where its queries begin",
        build=_from_query_table,
    ),
)
