"""What is found of a failing case is tried on a large one too, and kept where the time is over."""

import dataclasses
from itertools import islice
from types import SimpleNamespace

import pytest

from flashverify import parse_case
from flashverify.diagnosis import naming
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.records import Record
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import planted

CASE = "fv1 seq_q=1 seq_k=17 dim_qk=8 dim_v=8 dtype=fp32 backward=no blocks=16,16,128,1"


@pytest.mark.parametrize("settings", [0, 3])
def test_blocks_above_the_diagonal_are_no_second_tiles_however_many_settings_there_are(monkeypatch, settings):
    monkeypatch.setattr(
        naming,
        "other_settings",
        lambda _, case: (
            dataclasses.replace(case, values=dataclasses.replace(case.values, seed=901 + n)) for n in range(settings)
        ),
    )
    trials = Trials(planted(live=lambda s, p, live: live.tril()), 600.0)
    scene = trials.scene(parse_case(CASE))
    (skipped,) = (each for each in SEMANTICS if each.name == "second-key-tiles-skipped")

    records, found = naming._always(trials, scene, [Record(Claim(skipped))])

    assert (records, found) == ([], None)


def test_what_was_found_before_the_time_was_over_is_kept(monkeypatch):
    scene = look(
        planted(scale=lambda s, p: 1.0), parse_case("fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 backward=no")
    )
    missing = next(each for each in SEMANTICS if each.name == "scale-missing")
    monkeypatch.setattr(naming, "SEMANTICS", (missing, *SEMANTICS))

    assert [each.semantics for each in naming._claims_of(scene, lambda: False)] == [missing]


@pytest.mark.parametrize(
    ("said", "promising"),
    [
        ([[Answer.CLEAR]], True),
        ([[Answer.CLEAR, Answer.RIGHT]], False),  # it needs a condition
        ([[Answer.EXPLAINED]], False),
        ([[Answer.CLEAR]] * 4, False),
        ([], False),
    ],
)
def test_a_search_goes_on_beyond_its_share_while_few_claims_are_left_and_one_explains_clearly(said, promising):
    cases = iter("abcdef")
    trials = SimpleNamespace(of=lambda cases, share: (share * 10, *islice(cases, 2)))
    records = [Record(Claim(SEMANTICS[0]), list(answers)) for answers in said]
    found = list(naming._runs(trials, cases, lambda: naming._is_promising(records)))

    assert found == [5.0, "a", "b"] + [8.0, "c", "d"] * promising
