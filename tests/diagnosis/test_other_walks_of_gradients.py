"""Walks that end early, pairs that add to a table twice, and errors too large for rounding, in gradients alone."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.plainly_wrong import plainly_wrong
from flashverify.diagnosis.readings.backward.asking import effects
from flashverify.diagnosis.readings.backward.dictionary import options
from flashverify.diagnosis.readings.backward.fitting import Reading
from flashverify.diagnosis.readings.backward.formulas import STEPS_OF, Formula
from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect
from flashverify.diagnosis.readings.backward.numbers import ONE
from flashverify.diagnosis.readings.backward.quick_fits import may_fit
from flashverify.diagnosis.readings.masks.pieces import launched_pieces
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain
from tests.diagnosis.stepwise import assign, stepwise

CASE = "fv1 dim_qk=16 dim_v=16 dtype=fp32 "


def _walked(s):
    """Pairs but for tiles of 16 rows behind the last row that sees the first key of a tile of 16 keys."""
    rows, keys = s.see.shape[2:]
    row = torch.arange(rows)[:, None]
    last = torch.where(s.see, row, -1).amax(2, keepdim=True)[..., torch.arange(keys) // 16 * 16]
    return torch.where(row // 16 <= last // 16, s.inner, 0.0)


PLANTED = {
    "a walk that ends with the rows of the first key": (
        "seq_q=60 seq_k=60 causal=top-left window=20,*",
        {"at_heads": assign(dk=lambda s: s.scale * (_walked(s).mT @ s.q))},
        ("tiles of 16 rows that see a key of the tile of 16 keys, behind those that its first key sees",),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_effect_is_said(name):
    text, methods, words = PLANTED[name]
    trials = Trials(stepwise(**methods), 60.0)
    scene = trials.scene(parse_case(CASE + text))
    assert scene.failures, "the planted defect does not show"
    said = " | ".join(gradients_in_effect(trials, scene))
    assert all(part in said for part in words), said


class _NearlyFarPairsTwice(Plain):
    """Pairs one nearer than the table reaches before the row add to their own entry and to that of the farthest distance."""

    def buckets(self, problem):
        self.far = self.distance(problem) == 1 - len(problem.distance_buckets) // 2
        self.end = int(problem.distance_buckets[0])
        return super().buckets(problem)

    def table_gradient(self, ds, buckets, count):
        found = super().table_gradient(ds, buckets, count)
        found[:, self.end] += ds.masked_fill(~self.far[:, None], 0.0).sum((0, 2, 3))
        return found


def test_pairs_that_add_to_a_table_twice_are_said():
    trials = Trials(_NearlyFarPairsTwice(), 60.0)
    scene = trials.scene(parse_case(CASE + "seq_q=15 seq_k=9 relative_bias=8,6"))
    assert set(scene.failures) == {"drelative_bias"}

    assert gradients_in_effect(trials, scene) == (
        "drelative_bias adds pairs at keys as far before the row as the table reaches but for one "
        "to the entry of the farthest distance before the row as well as to their own",
    )


def test_many_formulas_at_once_are_refuted_as_each_alone():
    trials = Trials(stepwise(at_rows=assign(delta=lambda s: 2 * s.delta.roll(1, 2))), 60.0)
    scene = trials.scene(parse_case(CASE + "seq_q=12 seq_k=14 heads_q=2 softcap=3"))
    reading = next(Reading(each, "dk") for each in effects(trials, scene) if "dk" in each.read)
    tried = [{step: each} for step in STEPS_OF["dk"] for each in options(reading.scene)[step]]
    kept = may_fit(reading, tried, None, lambda: True)

    trials_of = [Formula(output="dk", changed=each, numbers=(ONE,) * 3) for each in tried]
    assert kept == [each for each, one in zip(tried, trials_of, strict=True) if reading.may_fit(one, reading.asked)]
    assert 0 < len(kept) < len(tried)
    assert may_fit(reading, tried, None, lambda: False) == []


@pytest.mark.parametrize(
    ("change", "large"),
    [
        (lambda s: -s.ds, True),
        (lambda s: s.ds.bfloat16().double(), False),
        (lambda s: (s.ds * 8).to(torch.float8_e4m3fn).double() / 8, False),
    ],
)
def test_errors_are_too_large_for_rounding(change, large):
    trials = Trials(stepwise(at_ds=assign(ds=change)), 60.0)
    scene = trials.scene(parse_case(CASE + "seq_q=20 seq_k=20"))
    assert scene.failures

    assert plainly_wrong(trials, scene) == large


def test_a_size_of_tiles_is_no_number_of_pieces():
    trials = Trials(Plain(), 60.0)
    problem = trials.scene(parse_case(CASE + "seq_q=5 seq_k=7")).problem
    for name, told in (("block_n", False), ("n_splits", True)):
        launched = SimpleNamespace(case=replace(problem.case, launch=((name, TILES[0]),)))
        assert any(True for _ in launched_pieces(launched)) == told
