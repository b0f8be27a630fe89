"""Conditions and places of a semantics that is known: what contradicted them, hid them or cost them their time."""

import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis import placing
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.conditions import in_words, parse
from flashverify.diagnosis.features import case_features
from flashverify.diagnosis.learning import rules
from flashverify.diagnosis.naming import named, named_at_places
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.places import PLACES, region_of
from flashverify.diagnosis.readings.weights.in_effect import weights_in_effect
from flashverify.diagnosis.state import suspecting
from flashverify.diagnosis.state.overwriting import overwritten
from flashverify.diagnosis.trials import Trials
from flashverify.subjects.interface import Forward
from tests.diagnosis import test_diagnosis
from tests.diagnosis.conditional import gradient_where, rows_where, size, where
from tests.diagnosis.planted import LOG2E, Plain, planted
from tests.diagnosis.test_diagnosis import CASE, FORWARD


def one_of(name):
    return next(semantics for semantics in SEMANTICS if semantics.name == name)


def one_more(self, i, j, left, right):
    return Plain.window(self, i, j, left, None if right is None else right + 1)


def test_a_mistake_under_another_name_of_its_family_is_no_contradiction():
    subject = planted(causal=lambda s, i, j: j <= i + 1, window=one_more)
    claim = Claim(one_of("window-right-one-wider"))
    assert claim.answer(look(subject, parse_case(FORWARD + "window=*,1"))) is Answer.CLEAR
    both = look(subject, parse_case(FORWARD + "causal=top-left window=2,3"))
    assert claim.answer(both) is Answer.EXPLAINED
    other = planted(causal=lambda s, i, j: j <= i + 2, window=one_more)
    assert claim.answer(look(other, both.case)) is Answer.OTHERWISE


class SlopesOfLateHeads(Plain):
    def alibi_slopes(self, slopes):
        return torch.where(torch.arange(len(slopes)) >= 2, 0.5 * slopes, slopes)


def test_a_term_that_counts_otherwise_in_whole_rows_is_said_with_their_place():
    subject = SlopesOfLateHeads()
    trials = Trials(subject, 300.0)
    texts = [f"fv1 heads_q={h} seq_q=3 seq_k={k} dim_qk=8 dim_v=8 dtype=fp32 alibi=yes seed={k}" for h, k in ((4, 7), (6, 9), (3, 8))]  # fmt: skip
    found = weights_in_effect(trials, [trials.scene(parse_case(f"{text} backward=no")) for text in texts])
    assert [said.words for said in found] == ["the logits in effect hold half ALiBi, only in query heads from 2 on"]


def test_a_place_is_asked_first_of_the_semantics_that_explain_the_smallest_case(monkeypatch):
    subject = gradient_where(lambda b, h, n, c: n >= n.numel() // 64 * 64, "dk", dk_factor=lambda s, p: 1 / p.scale)
    trials = Trials(subject, 300.0)
    start = trials.scene(parse_case(CASE))
    assert named(trials, start) is None
    monkeypatch.setattr(placing, "SEMANTICS", (one_of("gradient-without-scale"),))  # only for their order
    monkeypatch.setattr(placing, "_candidates", only_of_few(placing._candidates))
    found = named_at_places(trials, start)
    assert found is not None
    assert [str(each) for each in found.conditions] == ["key_tile[64] == partial"]


def test_every_second_head_is_told_from_the_first_one():
    subject = gradient_where(lambda b, h, n, c: h % 2 == 0, "dk", dk_factor=lambda s, p: 2.0)
    trials = Trials(subject, 300.0)
    start = trials.scene(parse_case(CASE))
    start.memo[placing.WHOLE] = (one_of("gradient-twice"),)
    (claim, evidence), *_ = placing.placed(trials, start, 1.0)
    assert evidence
    assert [str(each) for each in claim.conditions] == ["kv_head % 2 == 0"]


def only_of_few(candidates):
    def of(trials, scene, more, share, tried):
        return candidates(trials, scene, more, share, () if tried is placing.SEMANTICS else tried)

    return of


class InOtherUnits(Plain):
    """The LSE is computed in base 2, for rows within the query lengths alone, and converted by torch."""

    def forward(self, problem):
        right = Plain.forward(self, problem)
        lse = torch.empty_like(right.lse)
        for batch, length in enumerate(problem.query_lengths.tolist() if problem.query_lengths is not None else ()):
            lse[batch, :, :length] = right.lse[batch, :, :length] / math.log(2)
        if problem.query_lengths is None:
            lse.copy_(right.lse / math.log(2))
        return Forward(right.o, lse * math.log(2), right.saved)


def test_memory_that_nobody_wrote_shows_in_other_units():
    found = test_diagnosis.named(InOtherUnits(), FORWARD + "qlen=2")
    assert found.name == "not-written"
    assert found.sentence == "Elements of lse are never written: rows behind the query lengths."


class OneBuffer(Plain):
    def __init__(self):
        self.buffers = {}

    def forward(self, problem):
        right = Plain.forward(self, problem)
        o = self.buffers.setdefault(right.o.shape, right.o)
        return Forward(o.copy_(right.o), right.lse, right.saved)


def test_an_output_that_a_later_call_writes_over_is_said():
    case = parse_case(FORWARD)
    assert overwritten(Plain(), case) == ""
    assert overwritten(OneBuffer(), case) == (
        "Every call returns o in one buffer: a later call of the same shapes writes over what an earlier one returned."
    )


def test_the_room_of_tensors_is_told_from_the_lengths_in_it():
    texts = {
        True: ("seq_k=65", "seq_k=65 klen=64", "seq_k=80 klen=3"),
        False: ("seq_k=64", "seq_k=63 klen=2", "seq_k=2"),
    }
    holds, not_so = (
        [case_features(parse_case(f"fv1 dim_qk=8 dim_v=8 {text}")) for text in texts[of]] for of in (True, False)
    )
    assert [str(each) for each in rules(holds, not_so)[0].conditions] == ["room_k >= 65"]
    alike = [case_features(parse_case(f"fv1 dim_qk=8 dim_v=8 seq_k={n}")) for n in (65, 70, 9, 64)]
    assert [str(each) for each in rules(alike[:2], alike[2:])[0].conditions] == ["seq_k >= 65"]


def test_rows_that_are_not_aligned_are_one_condition():
    holds = [case_features(parse_case(f"fv1 {text}")) for text in ("offset=1", "gap=3", "offset=8 gap=4")]
    not_so = [case_features(parse_case(f"fv1{text}")) for text in ("", " offset=8", " gap=16")]
    (condition,) = rules(holds, not_so)[0].conditions
    assert condition.feature == "aligned"
    assert in_words([condition]) == "only where some rows do not begin at a multiple of 8 elements"


DOUBLED = {"lse": lambda s, lse, without_sink: LOG2E * lse}


@pytest.mark.parametrize(
    ("place", "text", "subject", "words"),
    [
        (
            "head % 2 == 1",
            FORWARD + "heads_q=4",
            rows_where(lambda p, b, h, i: h % 2 == 1, **DOUBLED),
            "in odd query heads, counted from 0",
        ),
        (
            "row_tile[16] == odd",
            size(FORWARD, seq_q=40),
            rows_where(lambda p, b, h, i: i // 16 % 2 == 1, **DOUBLED),
            "in every second tile of 16 rows, from the second one on",
        ),
        (
            "seen >= 16",
            size(FORWARD, seq_q=20, seq_k=30) + " causal=top-left",
            rows_where(lambda p, b, h, i: i >= 15, **DOUBLED),
            "in rows that see 16 keys or more",
        ),
    ],
)
def test_every_second_head_and_tile_and_rows_of_many_keys_are_places(place, text, subject, words):
    condition = parse(place)
    assert condition in PLACES
    assert in_words([condition]) == f"only {words}"
    scene = look(subject, parse_case(text))
    assert Claim(one_of("lse-base-2"), (condition,)).answer(scene) is Answer.CLEAR
    assert condition in dict(placing.covering(scene))
    assert Claim(one_of("lse-base-2")).answer(scene) is Answer.OTHERWISE


def test_a_distance_is_a_place():
    subject = where(lambda p, b, h, i, j: i - j >= 16, drop_keys=lambda s, see: see & False)
    scene = look(subject, parse_case(size(FORWARD, seq_q=24, seq_k=24)))
    inside = region_of(scene, [parse("distance <= -16")]).pairs
    assert bool((inside == (torch.arange(24)[:, None] - torch.arange(24) >= 16)).all())


def test_what_goes_by_shapes_is_asked_however_long_the_question_before_took(monkeypatch):
    now, left = [0.0], []
    for name in ("draws_of_the_first_call", "advancing_draws", "of_the_first_call"):
        monkeypatch.setattr(suspecting, name, lambda *args, **options: None)
    monkeypatch.setattr(suspecting, "follows_another", lambda *args: now.append(now.pop() + 2.0))
    monkeypatch.setattr(suspecting, "suspected", lambda subject, case, end, wide: left.append(end.left) or "")
    clock = Clock(wall=lambda: now[0], starved=lambda: 0.0)
    suspecting.of_a_later_call(Plain(), parse_case(CASE), 10.0, clock)
    assert left
    assert min(left) > 0
