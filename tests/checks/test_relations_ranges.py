"""Where a doubled input must double an output bit for bit: not where a weight or dS may be subnormal."""

import dataclasses

import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import execute
from flashverify.checks.relations.ground import Ground
from flashverify.checks.relations.ranges import doubled_gradients, weights
from tests.checks.naive import SUPPORTS, make

TEXT = "fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dtype=fp32 seed=243 dlse=yes "
SMALLEST = -126


def ground(text, **tensors):
    problem, _ = materialize(parse_case(TEXT + text))
    subject = make(supports=dataclasses.replace(SUPPORTS, dlse=True))
    problem = dataclasses.replace(problem, **{name: change(getattr(problem, name)) for name, change in tensors.items()})
    return Ground(subject, execute(subject, problem))


def test_usual_values_are_asked():
    found = ground("")
    masks = doubled_gradients(found, weights(found))

    assert float(weights(found).row.min()) > -20
    assert all(bool(mask.all()) for name, mask in masks.items() if name in ("dq", "dk", "dv", "delta"))


def test_weights_that_the_rounding_of_logits_may_make_subnormal_are_not_asked():
    """Logits near 2^30 are multiples of 64: a weight that is 1 exactly may come out as 2^-92 or less."""
    found = ground("regime=sentinels")
    masks = doubled_gradients(found, weights(found))

    assert float(weights(found).row.max()) < SMALLEST
    assert not bool(masks["dq"].any())
    assert not bool(masks["dk"].any())


def test_a_ds_that_is_subnormal_before_it_meets_large_keys_is_not_asked():
    found = ground(
        "do=zero",
        k=lambda x: torch.full_like(x, 2.0**28),
        q=torch.zeros_like,
        dlse=lambda x: torch.full_like(x, 2.0**-120),
    )

    assert not bool(doubled_gradients(found, weights(found))["dq"].any())
