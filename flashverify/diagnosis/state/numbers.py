"""Numbers that a call is given beside its tensors, of which a later call may have one alone: the seed of dropout, its offset, the splits."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.dropout import drawn
from flashverify.diagnosis.hypotheses.merging import pieces
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.mask_tensors import with_parts
from flashverify.outputs import FORWARD, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.state.calling import Called

__all__ = ["as_few_parts", "as_many_keys", "offset_alone", "parts_left_over", "seed_alone"]


def as_few_parts(_: object, called: Called) -> Expectations | None:
    """The later call without its parts behind as many as the earlier one had; a sink may be one part more."""
    later, few = called.later, called.earlier.form.n_splits
    if few >= later.form.n_splits:
        return None
    inputs = [with_parts(later, splits=piece < few) for piece in pieces(later)]
    if later.inputs.sink is not None:
        inputs = [x for each in inputs for x in (dataclasses.replace(each, sink=None), each)]
    return _first(later, (Alternative(inputs=each) for each in inputs))


def parts_left_over(_: object, called: Called) -> Expectations | None:
    """The later call with the parts that the earlier one, of the same Q, K, V and mask, had behind as many as it has itself."""
    later, earlier = called.later, called.earlier
    few, many = later.form.n_splits, earlier.form.n_splits
    if few >= many or not _alike(later, earlier):
        return None
    biases = (torch.where(piece >= few, math.log(2.0), 0.0).double() for piece in pieces(earlier))
    inputs = later.inputs
    return _first(
        later, (Alternative(inputs=dataclasses.replace(inputs, biases=(*inputs.biases, bias))) for bias in biases)
    )


def seed_alone(_: object, called: Called) -> Expectations | None:
    """The draws of dropout by the seed of the earlier call and the later one's own offset."""
    return _drawn(called, seed=called.earlier.problem.dropout_seed)


def offset_alone(_: object, called: Called) -> Expectations | None:
    """The draws of dropout by the offset of the earlier call and the later one's own seed."""
    return _drawn(called, offset=called.earlier.problem.dropout_offset)


def _drawn(called: Called, **changed: int) -> Expectations | None:
    later, case = called.later, called.later.case
    if not case.dropout or not (case.seq_q and case.seq_k) or case.values.seed == called.earlier.case.values.seed:
        return None
    inputs = dataclasses.replace(later.inputs, keep=drawn(later, **changed))
    return later.expect(Alternative(inputs=inputs), frozenset(OUTPUTS))


def _alike(one: Scene, two: Scene) -> bool:
    same = dataclasses.replace(one.case, launch=two.case.launch) == two.case
    return same and all(torch.equal(getattr(one.inputs, name), getattr(two.inputs, name)) for name in ("q", "k", "v"))


def _first(scene: Scene, alternatives: Iterator[Alternative]) -> Expectations | None:
    """What the first alternative expects under which all that fails of the forward is explained; None where none does."""
    names = frozenset(name for name in FORWARD if name in scene.failures)
    for alternative in alternatives:
        if names and scene.agrees(alternative, names):
            return scene.expect(alternative, frozenset(FORWARD))
    return None


def as_many_keys(_: object, called: Called) -> Expectations | None:
    """The later call without its keys behind as many as the earlier one has."""
    later, keys = called.later, called.earlier.case.seq_k
    if keys >= later.case.seq_k or later.case.mask.packed is not None:
        return None
    near = torch.arange(later.case.seq_k).view(1, 1, 1, -1) < keys
    return later.expect(Alternative(inputs=with_parts(later, keys_before=near)), frozenset(OUTPUTS))
