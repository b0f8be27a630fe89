"""Gradients that are means, mixtures of heads, multiples of what is declared or sums of some rows are said to be that."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.naming import named
from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect
from flashverify.diagnosis.readings.backward.proportions import proportional
from flashverify.diagnosis.trials import Trials
from flashverify.judge.verdict import Status, Verdict
from tests.diagnosis.stepwise import assign, stepwise
from tests.fast_tier import thorough_in

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=16 dim_v=16 dtype=fp32 "
GROUPS = CASE + "heads_q=4 heads_kv=2 "
SINKS = GROUPS + "sink=yes "


def _over_group(x, group, how):
    split = x.unflatten(0, (-1, group))
    return getattr(split, how)(1, keepdim=True).expand_as(split).flatten(0, 1)


def _rows(x):
    return x.unsqueeze(-1)


def _of_tiles(size):
    """Delta as the sum of P dP over the keys of the pair's tile."""

    def change(s):
        parts = (s.p * s.dp).split(size, 3)
        own = torch.cat([part.sum(3, keepdim=True).expand_as(part) for part in parts], 3)
        s.ds = s.p * (s.dp - own + _rows(s.dlse))

    return change


def _last_rows(size):
    def change(s):
        rows = s.lse.shape[2]
        kept = torch.arange(rows) >= (rows - 1) // size * size
        s.dsink = (s.sink_weight * (s.dlse - s.delta) * kept).sum((0, 2))

    return change


def _slopes(s):
    return s.problem.slopes.double().view(1, -1, 1, 1)


PLANTED = {
    "dsink summed over the group": (
        SINKS,
        {"at_end": assign(dsink=lambda s: _over_group(s.dsink, s.group, "sum"))},
        "dsink of a head is the sum over the query heads of its group",
    ),
    "dsink averaged over the group": (
        SINKS,
        {"at_end": assign(dsink=lambda s: _over_group(s.dsink, s.group, "mean"))},
        "dsink of a head is the mean over the query heads of its group",
    ),
    "dsink of the head before": (
        SINKS,
        {"at_end": assign(dsink=lambda s: s.dsink.roll(1, 0))},
        "dsink of a head is that of the head before",
    ),
    "dV of all heads": (
        GROUPS,
        {"at_end": assign(dv=lambda s: s.dv.sum(1, keepdim=True).expand_as(s.dv))},
        "dV of a head is the sum over all heads",
    ),
    "dsink averaged over rows": (
        SINKS,
        {"at_end": assign(dsink=lambda s: s.dsink / s.lse.shape[2])},
        "dsink is the mean over the rows of each sequence, not the sum",
    ),
    "dsink with the square of its weight": (
        SINKS,
        {"at_sink": assign(sink_weight=lambda s: s.sink_weight**2)},
        "dsink takes the square of the weight of the sink",
    ),
    "dsink of the last tile of rows of an unusual size": (
        "fv1 seq_q=50 seq_k=7 dim_qk=16 dim_v=16 dtype=fp32 sink=yes",
        {"at_end": _last_rows(40)},
        "dsink leaves out what it sums before the last tile of 40 rows",
    ),
    "dbias averaged over rows": (
        CASE + "bias=full",
        {"at_end": assign(dbias=lambda s: s.dbias / s.problem.case.seq_q)},
        "1 / Sq",
    ),
    "dLSE averaged over rows": (
        CASE + "dlse=yes",
        {"at_rows": assign(dlse=lambda s: s.dlse.mean(2, keepdim=True).expand_as(s.dlse))},
        "dLSE is the mean over the rows of the sequence",
    ),
    "delta of a tile of keys": (
        "fv1 seq_q=5 seq_k=40 dim_qk=16 dim_v=16 dtype=fp32",
        {"at_ds": _of_tiles(32)},
        "delta sums P dP over the pair's tile of 32 keys alone",
    ),
    "weights with half the slope": (
        GROUPS + "alibi=yes",
        {"at_weights": assign(weights=lambda s: s.p * (-0.5 * _slopes(s)).exp())},
        "every weight is multiplied by exp(-0.5 * the slope of ALiBi)",
    ),
    "no derivative of the cap at negative products": (
        CASE + "softcap=2",
        {"at_slope": assign(inner=lambda s: torch.where(s.raw < 0, s.ds, s.inner))},
        "at pairs whose scaled product is below 0: the derivative of the softcap is missing",
    ),
    "dK scaled by the padded dim": (
        "fv1 seq_q=5 seq_k=7 dim_qk=24 dim_v=24 dtype=fp32",
        {"at_end": assign(dk=lambda s: s.dk * (s.q.shape[3] / max(16, 1 << (s.q.shape[3] - 1).bit_length())) ** 0.5)},
        "dK is sqrt(D / the power of two, at least 16, to which D is padded) times what is declared",
    ),
    "delta lost with a single row": (
        "fv1 seq_k=7 dim_qk=16 dim_v=16 dtype=fp32",
        {"at_rows": lambda s: setattr(s, "delta", s.delta * (s.delta.shape[2] != 1))},
        "delta is missing, only where Sq < 2",
    ),
}


REPEATED = (
    "dsink averaged over the group",
    "dsink averaged over rows",
    "dsink of the head before",
    "no derivative of the cap at negative products",
    "delta lost with a single row",
)
"""Another mean, another place of a head, another step that is missing at some pairs, and one that is missing in some cases."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", thorough_in(REPEATED, PLANTED))
def test_a_planted_sum_is_said(name):
    text, methods, words = PLANTED[name]
    trials = Trials(stepwise(**methods), 60.0)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    said = " | ".join(gradients_in_effect(trials, scene))
    assert words in said, said
    assert "for a reason that was not found" not in said


def _by_tiles(s):
    return -(-s.q.shape[2] // 40)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.dk / _by_tiles(s), "dK is 1 / the number of tiles of "),
        (lambda s: s.dk * (0.3 + 0.1 * s.q.shape[2]) ** -0.5, "dK is what is declared times one number"),
        (
            lambda s: s.dk * (1.5 + torch.arange(s.dk.shape[1]) ** 2 / s.q.shape[2]).view(1, -1, 1, 1),
            "dK is what is declared times a number of each head",
        ),
    ],
)
def test_what_is_a_multiple_of_what_is_declared_is_said_to_be_one(change, words):
    trials = Trials(stepwise(at_end=assign(dk=change)), 60.0)
    scene = trials.scene(parse_case(GROUPS.replace("seq_q=5", "seq_q=45")))
    assert scene.failures
    assert proportional(trials, scene, "dk").startswith(words)


def test_what_is_no_multiple_is_not_said_to_be_one():
    trials = Trials(stepwise(at_end=assign(dk=lambda s: s.dk + s.dk.roll(1, 2))), 20.0)
    scene = trials.scene(parse_case(GROUPS))
    assert scene.failures
    assert proportional(trials, scene, "dk") == ""


def test_the_detail_of_a_name_is_one_that_explains_every_case():
    """Rows from 64 on are those before the last tile of 16 in the smallest case alone."""

    def first_rows(s):
        s.dsink = (s.sink_weight * (s.dlse - s.delta) * (torch.arange(s.lse.shape[2]) < 64)).sum((0, 2))

    trials = Trials(stepwise(at_end=first_rows), 60.0)
    scene = trials.scene(parse_case("fv1 seq_q=65 seq_k=3 dim_qk=16 dim_v=16 dtype=fp32 sink=yes"))
    first = named(trials, scene).claims[0]
    assert (first.semantics.name, first.detail) == ("dsink-of-some-rows", "of the first tile of 64")


@pytest.mark.thorough
def test_a_group_of_another_size_tells_which_head_is_lost():
    """With three heads the first one lost and the last two kept are the same."""

    def lost(s):
        kept = (torch.arange(s.q.shape[1]) % s.group != 0).view(1, -1, 1, 1) if s.group >= 3 else 1.0
        s.dk, s.dv = s.dk * kept, s.dv * kept

    case = parse_case("fv1 seq_q=5 seq_k=7 heads_q=3 heads_kv=1 dim_qk=16 dim_v=16 dtype=fp32")
    verdict = Verdict("accuracy", Status.FAIL, output="dk", error="bound")
    found = diagnose(stepwise(at_heads=lost), case, verdict, seconds=60.0)
    assert found.name == "group-member-lost"
    assert "group >= 3" in found.conditions
