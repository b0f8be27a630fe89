"""Tiles of any size, tensors that two steps read, weights of the sink and coefficients of sums are read off a backward, and bounds hold them."""

from dataclasses import replace

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.backward_steps import changed
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.hypothesis import Semantics
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.readings.backward.formulas import Formula
from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect
from flashverify.diagnosis.readings.backward.moves import row_moves
from flashverify.diagnosis.readings.backward.numbers import ONE
from flashverify.diagnosis.readings.backward.sink_readings import sink_formulas
from flashverify.diagnosis.readings.backward.sum_numbers import numbered_sums
from flashverify.diagnosis.readings.backward.sum_readings import sum_formulas
from flashverify.diagnosis.readings.backward.weight_variants import weight_variants
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain
from tests.diagnosis.stepwise import assign, stepwise
from tests.fast_tier import fast_one_in

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=16 dim_v=16 dtype=fp32 "
ROWS = CASE.replace("seq_q=5", "seq_q=37")
HEADS = CASE + "heads_q=3 heads_kv=3 "


def first_of_tile(x, size):
    """`[B, Hq, Sq, ...]` with the first row of each tile in place of every row."""
    row = torch.arange(x.shape[2])
    return x[:, :, row - row % size]


def of_a_tile_by_head_dim(s):
    s.delta = first_of_tile(s.delta, 16 if s.q.shape[3] < 32 else 32)


def q_of_the_next_head(s):
    s.z = torch.where(s.see, s.scale * (s.q.roll(-1, 1) @ s.k.mT), -torch.inf)


def positions_in_a_tile(s):
    row = torch.arange(s.z.shape[2]) % 16
    terms = torch.where(s.see, s.z - s.raw, -torch.inf)[:, :, row]
    s.z, s.see = s.raw + terms, s.see[:, :, row]


PLANTED = {
    "a tile of one size": (
        {"at_rows": assign(delta=lambda s: first_of_tile(s.delta, 16))},
        ROWS,
        "delta is that of the first row of its tile of 16",
    ),
    "a tile by the head dim": (
        {"at_rows": of_a_tile_by_head_dim},
        ROWS,
        "delta is that of the first row of its tile |",
    ),
    "Q of another head": (
        {
            "at_start": q_of_the_next_head,
            "at_heads": assign(dk=lambda s: s.scale * (s.inner.mT @ s.q.roll(-1, 1))),
        },
        HEADS,
        "the weights are made of Q of the next query head; the product takes Q of the next query head",
    ),
    "positions in a tile": (
        {"at_start": positions_in_a_tile},
        ROWS.replace("seq_k=7", "seq_k=35") + "causal=top-left alibi=yes",
        "the weights take the mask and the distances of the row of that place in the first tile of 16",
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", fast_one_in(4, PLANTED, kept=2))
def test_a_planted_effect_is_said(name):
    methods, text, words = PLANTED[name]
    trials = Trials(stepwise(**methods), 300.0)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    said = " | ".join((*gradients_in_effect(trials, scene), ""))
    assert words in said, said
    assert "for a reason that was not found" not in said


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ("causal=top-left alibi=yes", Answer.CLEAR),
        ("causal=top-left", Answer.CLEAR),
        ("alibi=yes", Answer.CLEAR),
        ("", Answer.SILENT),
    ],
)
def test_the_mask_and_the_distances_of_another_row_are_one_mistake_on_cases_that_have_one_of_them(options, answer):
    _, text, words = PLANTED["positions in a tile"]
    option = next(each for each in weight_variants(look(Plain(), parse_case(text))) if each.words == words)
    formula = Formula(output="dq", changed={"weights": option}, numbers=(ONE,) * 3)
    claim = Claim(
        Semantics(name=f"{words}: {options}", sentence="", build=lambda x: [formula.alternative(x)], outputs=("dq",))
    )
    scene = look(stepwise(at_start=positions_in_a_tile), parse_case(ROWS + options))

    assert claim.answer(scene, frozenset({"dq"})) is answer


SINKS = {
    "takes the LSE of the next query head": lambda s: (s.sink - s.lse.roll(-1, 1)).exp(),
    "takes the sink of the next query head": lambda s: (s.sink.roll(-1, 1) - s.lse).exp(),
    "is exp(sink), not normalised": lambda s: s.sink.exp() + 0 * s.lse,
    "is exp(sink - the largest logit)": lambda s: (s.sink - s.z.amax(-1)).exp(),
}


@pytest.mark.parametrize("words", SINKS)
def test_weights_of_the_sink_are_read_off_its_gradient(words):
    scene = look(stepwise(at_sink=assign(sink_weight=SINKS[words])), parse_case(HEADS + "sink=yes"))
    said = [each.words(False) for each in sink_formulas(scene, "dsink", lambda: True)]

    assert scene.failures
    assert said == [f"in dsink the weight of the sink {words}"]


def test_rows_without_keys_that_count_are_read_off_the_gradient_of_the_sinks():
    def of_every_row(s):
        empty = torch.where(s.some, 0.0, s.sink.exp() * torch.nan_to_num(s.problem.dlse.double()))
        s.dsink = s.dsink + empty.sum((0, 2))

    case = parse_case(HEADS + "sink=yes dlse=yes causal=bottom-right klen=3")
    scene = look(stepwise(at_end=of_every_row), case)
    said = [each.words(True) for each in sink_formulas(scene, "dsink", lambda: True)]

    assert said == ["in dsink rows that see no key count, with the weight exp(sink)"]


def test_coefficients_are_read_off_the_gradient_of_a_shared_bias():
    def twice(s):
        s.dbias = (s.p * (s.dp - 2 * s.delta.unsqueeze(-1))).sum(1, keepdim=True)

    scene = look(stepwise(at_end=twice), parse_case(HEADS + "bias=shared"))
    said = [each.words(False) for each in numbered_sums(scene, "dbias")]

    assert said == ["in dbias delta counts 2 times"]


class OverwrittenEntries(Plain):
    """An entry of the table gets the sum of the last of its distances alone."""

    def table_gradient(self, ds, buckets, count):
        table, far = self.problem.distance_buckets, len(self.problem.distance_buckets) // 2
        last = {int(entry): place for place, entry in enumerate(table)}
        kept = torch.tensor(sorted(last.values()))
        clipped = self.distance(self.problem)[:, None].clamp(-far, far) + far
        return super().table_gradient(torch.where(torch.isin(clipped, kept), ds, 0.0), buckets, count)

    def backward(self, problem, forward):
        self.problem = problem
        return super().backward(problem, forward)


def test_an_entry_that_is_overwritten_by_its_last_distance_is_a_place():
    scene = look(OverwrittenEntries(), parse_case(CASE.replace("seq_q=5", "seq_q=15") + "relative_bias=4,12"))
    said = [each.words(False) for each in sum_formulas(scene, "drelative_bias", lambda: True)]

    assert "drelative_bias leaves out what it sums at distances that are not the last of their entry" in said


def test_rows_of_one_weight_hide_no_rounding_from_another_delta():
    scene = look(stepwise(), parse_case(CASE + "regime=logits-1e3"))
    move = row_moves(scene)["the first row"]
    elsewhere = changed(
        scene,
        scene.inputs,
        (scene.o, scene.lse),
        scene.declared(("dq", "dk", "dv")),
        lambda s: replace(s, delta=s.delta.flatten()[move.number]),
    )

    assert elsewhere["dq"].holds(elsewhere["dq"].value * (1 + 2.0**-13)).all()
    assert not elsewhere["dq"].holds(elsewhere["dq"].value * (1 + 2.0**-4)).all()
