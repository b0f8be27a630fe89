"""What is read where lengths are read in units, where a case has no rows, and where a sink is out of reach."""

from types import SimpleNamespace

import pytest
import torch

from flashverify.case import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.masks.scenes import right_scenes
from flashverify.diagnosis.readings.weights.masses import sink_in_effect
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain, planted


def read(subject, texts, output="o"):
    trials = Trials(subject, 300)
    scenes = [trials.scene(parse_case(text)) for text in texts]
    failing = next(scene for scene in scenes if scene.failures)
    return readings(trials, failing, output).sentences


def test_lengths_in_units_of_four_keys_are_no_tiles():
    def in_fours(_, length):
        return -(-length // 4) * 4

    sizes = {(1, 9): 5, (6, 21): 13, (8, 12): 4, (5, 30): 17, (9, 40): 16}
    texts = [f"fv1 seq_q={q} seq_k={k} dim_qk=8 dim_v=8 klen={n} backward=no" for (q, k), n in sizes.items()]

    assert read(planted(keys=in_fours), texts) == ("O sees keys from the declared length up to a multiple of 4",)


def test_a_case_without_rows_or_keys_is_no_right_one_to_hold_a_mask_against():
    trials = Trials(Plain(), 300)
    for sizes in ("seq_q=0 seq_k=7", "seq_q=5 seq_k=0", "seq_q=5 seq_k=7"):
        last = trials.scene(parse_case(f"fv1 {sizes} dim_qk=8 dim_v=8 causal=top-left backward=no"))

    assert [(s.case.seq_q, s.case.seq_k) for s in right_scenes(trials, last)] == [(5, 7)]


def sink_said(sinks, change):
    """What is said of sinks that are `change` of the declared ones in four rows of two keys."""
    sink = torch.tensor(sinks, dtype=torch.float64)
    shape = (1, len(sinks), 4)
    logits = torch.zeros(*shape, 2, dtype=torch.float64)
    total = torch.logaddexp(logits.logsumexp(-1), change(sink).view(1, -1, 1))
    case = SimpleNamespace(logits=SimpleNamespace(softcap=None), dim_qk=16)
    effect = SimpleNamespace(
        scene=SimpleNamespace(inputs=SimpleNamespace(sink=sink, scale=0.3), case=case, group=1),
        open_rows=torch.zeros(shape, dtype=torch.bool),
        relative=torch.full((*shape, 1), 2.0**-12),
        floor=2.0**-124,
    )
    return sink_in_effect([SimpleNamespace(effect=effect, logits=logits, shift=-total)])


@pytest.mark.parametrize(("factor", "said"), [(1.0, ""), (0.5, "the sink in effect is 0.5 times the declared one")])
def test_a_sink_in_effect_that_is_the_declared_one_is_not_said(factor, said):
    assert sink_said([1.0, -2.0, 3.0], lambda x: factor * x) == said


@pytest.mark.parametrize(
    ("sinks", "said"),
    [([1.0, 2.0, -0.5, 0.7], "the sink in effect is the square of the declared one"), ([1.0, 2.0], "")],
)
def test_a_formula_of_the_sinks_takes_more_than_two_of_them(sinks, said):
    assert sink_said(sinks, lambda x: x * x) == said
