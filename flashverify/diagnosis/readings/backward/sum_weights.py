"""Sums over rows or pairs, of which each addend counts by a share of its own: means in place of sums, weights of the sink taken otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.sum_readings import OF_SUMS, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

    Share = Callable[[Scene, Steps], Tensor | None]

__all__ = ["WeighedSum", "weighed_sums"]

_CLEAR = 4.0
"""Times its bound that the change is at least, somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeighedSum:
    """A sum whose addends are multiplied by a share.

    Attributes:
        output: `dsink`, `dbias` or `drelative_bias`.
        how: in words, after the name of the output.
        share: of a case and its steps, broadcasts to `[B, Hq, Sq, Sk]`, for dsink to `[B, Hq, Sq, 1]`; None where the case has none.
    """

    output: str
    how: str
    share: Share

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where each addend counts once."""
        if scene.inputs.do is None or not scene.case.seq_q or not scene.case.seq_k:
            return None

        def steps(s: Steps) -> Steps:
            share = self.share(scene, s)
            if share is None:
                return s
            if self.output == "dsink":
                return s if s.sink_weight is None else replace(s, sink_weight=s.sink_weight * share[..., 0])
            return replace(s, p=s.p * share.abs().clamp(min=1.0), ds=s.formula(), dbias_ds=s.formula() * share)

        return Alternative(steps=steps)

    def words(self, _dlse: bool) -> str:
        """A sentence without its full stop."""
        return f"{OF_SUMS[self.output]} {self.how}"


def weighed_sums(scene: Scene, output: str) -> Iterator[WeighedSum]:
    """Shares that give the output of a case; none for delta, which is no sum of several addends.

    Args:
        scene: where it is wrong.
        output: one of `OF_SUMS`.
    """
    if output == "delta" or scene.o is None or scene.lse is None:
        return
    s, right, got = steps_of(scene.inputs, scene.o, scene.lse), scene.right[output], scene.outputs[output]
    value = s.formula() if output != "dsink" else (s.dlse - s.delta) * s.some
    asked = torch.isfinite(right.total) & torch.isfinite(got)
    for how, share in _shares(output):
        found = share(scene, s)
        if found is None:
            continue
        made = summed(scene, output, value * (found if output != "dsink" else found[..., 0]), s)
        larger = max(1.0, float(found.abs().max())) if found.numel() else 1.0
        near = ((got - made).abs() <= right.total * larger)[asked]
        if bool(near.all()) and bool(((made - right.value).abs() > _CLEAR * right.total)[asked].any()):
            yield WeighedSum(output=output, how=how, share=share)


def _shares(output: str) -> Iterator[tuple[str, Share]]:
    if output == "dsink":
        yield "is the mean over the rows of each sequence, not the sum", _per(lambda scene, _s: _rows(scene))
        yield (
            "is the mean over the rows of each sequence that see a key",
            _per(lambda _scene, s: s.some.sum(-1).view(*s.some.shape[:2], 1, 1)),
        )
        yield "takes the square of the weight of the sink", lambda _scene, s: _sink(s, lambda w: w)
        yield "has the weight of the sink times 1 - that weight", lambda _scene, s: _sink(s, lambda w: 1 - w)
        yield "has 1 - the weight of the sink in place of the weight", lambda _scene, s: _sink(s, lambda w: (1 - w) / w)
        yield (
            "has w / (1 + w) in place of w, the weight of the sink, which is that of an LSE that holds it once more",
            lambda _scene, s: _sink(s, lambda w: 1 / (1 + w)),
        )
        yield "takes the root of the weight of the sink", lambda _scene, s: _sink(s, lambda w: w**-0.5)
    if output == "drelative_bias":
        yield "is the mean over the distances that share an entry, not the sum", _per(_distances(reached=False))
        yield (
            "is the mean over the distances that share an entry, as far as the longer of rows and keys reaches",
            _per(_distances(reached=True)),
        )
        yield "is the mean over the visible pairs of an entry, not the sum", _per(_pairs_of_entry)
    if output in ("drelative_bias", "dbias"):
        yield "has pairs that count once more by their weight: P dS", lambda _scene, s: s.p
        yield "has pairs without their weight: dS / P", lambda _scene, s: (1 / s.p).where(s.p > 0, 0.0)
        yield "has the derivative of the softcap", lambda scene, s: s.slope if scene.inputs.softcap else None
        yield "is 0 at pairs that dropout drops", lambda scene, s: _kept(scene, s, scaled=False)
        yield (
            "is dropped and scaled by 1 / (1 - p) as the weights are",
            lambda scene, s: _kept(scene, s, scaled=True),
        )
    yield "is divided by the keys that the row sees", _per(lambda _scene, s: s.see.sum(-1, keepdim=True))
    yield "is divided by the number of keys of the sequence", _per(lambda scene, _s: _keys(scene))
    if output != "dsink":
        yield "is divided by the number of rows of the sequence", _per(lambda scene, _s: _rows(scene))
    yield (
        "is the mean over the sequences, not the sum",
        _per(lambda scene, s: torch.full((1, 1, 1, 1), _sequences(scene), dtype=s.p.dtype)),
    )
    yield "counts each row by its number, from 1 on", lambda scene, _s: scene.at.row[:, None, :, None].double() + 1


def _per(count: Callable[[Scene, Steps], Tensor | None]) -> Share:
    """One over a count; where that is 0 nothing counts."""

    def share(scene: Scene, s: Steps) -> Tensor | None:
        found = count(scene, s)
        return None if found is None else (1.0 / found.double()).where(found != 0, 0.0)

    return share


def _rows(scene: Scene) -> Tensor:
    return scene.at.rows[:, None, :, None]


def _keys(scene: Scene) -> Tensor:
    return scene.at.keys[:, None, :, None]


def _sequences(scene: Scene) -> int:
    packed = scene.case.mask.packed
    return scene.case.batch if packed is None else len(packed.lengths())


def _sink(s: Steps, change: Callable[[Tensor], Tensor]) -> Tensor | None:
    return None if s.sink_weight is None else change(s.sink_weight).nan_to_num(0.0, 0.0, 0.0).unsqueeze(-1)


def _kept(scene: Scene, s: Steps, *, scaled: bool) -> Tensor | None:
    if not scene.case.dropout:
        return None
    return s.kept if scaled else (s.kept > 0).double()


def _distances(*, reached: bool) -> Callable[[Scene, Steps], Tensor | None]:
    """How many distances share the entry of each pair."""

    def count(scene: Scene, _s: Steps) -> Tensor | None:
        buckets, mine = scene.problem.distance_buckets, scene.inputs.relative_buckets
        if buckets is None or mine is None:
            return None
        far = len(buckets) // 2
        reach = min(far, max(scene.case.seq_q, scene.case.seq_k)) if reached else far
        held = torch.bincount(buckets.long()[far - reach : far + reach + 1], minlength=int(buckets.max()) + 1)
        return held[mine.long()]

    return count


def _pairs_of_entry(scene: Scene, s: Steps) -> Tensor | None:
    """How many visible pairs of the head add to the entry of each pair."""
    mine = scene.inputs.relative_buckets
    if mine is None or scene.inputs.bucket_count is None:
        return None
    entries = mine.long().expand_as(s.p).transpose(0, 1).flatten(1)
    table = s.p.new_zeros(s.p.shape[1], scene.inputs.bucket_count)
    table = table.scatter_add(1, entries, s.see.expand_as(s.p).double().transpose(0, 1).flatten(1))
    found = table.gather(1, entries).view(s.p.shape[1], s.p.shape[0], *s.p.shape[2:])
    return found.transpose(0, 1)
