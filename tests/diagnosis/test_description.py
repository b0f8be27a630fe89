"""What is said of a failure that has no name holds on every case that was run."""

import dataclasses
import zlib

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis import arbitration
from flashverify.diagnosis.description.necessary import necessary
from flashverify.diagnosis.description.repeating import differing_calls, other_seeds
from flashverify.diagnosis.description.sizes_of_errors import size_of_errors
from flashverify.diagnosis.description.wrong_elements import as_if
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.readings import Readings
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.test_diagnosis import FORWARD, first_failure

CASE = parse_case(f"{FORWARD} causal=top-left")


class SomeRows(Plain):
    """Rows that are chosen by a hash see more than they should, or have other values."""

    def __init__(self, change=None):
        self.change = change

    def chosen(self, problem):
        case = problem.case
        noise = torch.Generator().manual_seed(zlib.crc32(str(case).encode()))
        return torch.rand(case.seq_q, generator=noise) < 0.6

    def forward(self, problem):
        right = super().forward(problem)
        rows = self.chosen(problem)
        if self.change is not None:
            o = torch.where(rows[:, None], self.change(right.o), right.o)
            return dataclasses.replace(right, o=o)
        mask = dataclasses.replace(problem.case.mask, causal=None)
        case = dataclasses.replace(problem.case, mask=mask)
        other = super().forward(dataclasses.replace(problem, case=case))
        o, lse = (
            torch.where(rows.view(-1, *[1] * (x.dim() - 3)), x, y)
            for x, y in ((other.o, right.o), (other.lse, right.lse))
        )
        return dataclasses.replace(right, o=o, lse=lse)


def tried(subject, case=CASE, most=14):
    """Runs of related cases, and those that fail."""
    trials = Trials(subject, 300.0)
    for _ in trials.of([case, *variants(subject, case)]):
        if len(trials.scenes) == most:
            break
    return trials, [scene for scene in trials.scenes.values() if scene.failures]


def test_wrong_elements_that_a_semantics_gives_are_said_to_be_that():
    trials, failing = tried(SomeRows())

    assert len(failing) > 5
    assert as_if(trials, "o", 1.0) == (
        "Every wrong element of lse and o is what it would be if the causal mask is ignored; which elements these are was not found"
    )


def test_wrong_elements_of_no_semantics_are_said_to_be_none():
    trials, _ = tried(SomeRows(lambda o: 1.3 * o + 0.2))

    assert as_if(trials, "o", 1.0) == ""


def test_nothing_is_said_where_not_all_semantics_were_tried():
    trials, _ = tried(SomeRows())

    assert as_if(trials, "o", 0.0) == ""


@pytest.mark.slow
@pytest.mark.thorough
def test_the_sentence_has_what_the_wrong_elements_hold(monkeypatch):
    monkeypatch.setattr(arbitration, "readings", lambda *_: Readings())
    subject = SomeRows()
    found = diagnose(subject, CASE, first_failure(subject, CASE), seconds=60.0)

    assert found.name == ""
    assert "Every wrong element of lse and o is what it would be if the causal mask is ignored;" in found.sentence


class Counting(Plain):
    """Each call adds another number."""

    calls = 0

    def output(self, o, z, v, lse):
        self.calls += 1
        return o + self.calls


@pytest.mark.parametrize(
    ("subject", "said"), [(Counting(), True), (planted(output=lambda s, o, z, v, lse: o + 1), False)]
)
def test_calls_of_one_problem_that_differ_are_said_to(subject, said):
    trials, failing = tried(subject, most=4)

    assert len(failing) > 2
    assert differing_calls(trials, 1.0).startswith("Calls of one problem return other values of o each time") is said


@pytest.mark.parametrize(("fails", "words"), [(lambda seed: seed % 4 == 1, "2 times in 8"), (lambda seed: True, "")])
def test_a_failure_that_depends_on_the_seed_alone_is_said_to_depend_on_the_values(fails, words):
    class BySeed(Plain):
        def forward(self, problem):
            found = super().forward(problem)
            return dataclasses.replace(found, o=found.o + fails(problem.case.values.seed))

    found = other_seeds(Trials(BySeed(), 60.0), parse_case(f"{FORWARD} seed=4"), 1.0)

    assert words in found
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda o: o * torch.nan, "Every wrong element of o is NaN or infinite"),
        (lambda o: o + 3, "times the bound"),
    ],
)
def test_the_size_of_errors_is_said(change, said):
    _, failing = tried(planted(output=lambda s, o, z, v, lse: change(o)), most=5)
    (words,) = size_of_errors(failing, "o")

    assert said in words
    assert size_of_errors(failing[:2], "o") == []


def chancy(needs):
    """O is wrong where `needs` says so, and then by a hash of the case."""

    class Chancy(Plain):
        def forward(self, problem):
            found = super().forward(problem)
            wrong = needs(problem.case) and zlib.crc32(str(problem.case).encode()) % 4 > 0
            return dataclasses.replace(found, o=found.o + wrong)

    return Chancy()


def test_what_every_failing_case_has_is_said_with_how_many_lack_it():
    case = next(
        found
        for seed in range(20)
        if zlib.crc32(
            str(found := dataclasses.replace(CASE, values=dataclasses.replace(CASE.values, seed=seed))).encode()
        )
        % 4
    )
    trials, _ = tried(chancy(lambda case: case.dim_qk < 24), case, most=40)
    found = necessary(trials, trials.scenes[case], 1.0)

    assert found is not None
    assert found.condition.feature == "dim_qk"
    assert found.without > 2
    assert found.right > 0


def test_what_fresh_cases_refute_is_not_said():
    """Of related cases no failing one has more than 16 channels; fresh ones fail with 64."""
    trials, failing = tried(chancy(lambda case: case.dim_qk != 32), most=30)
    found = necessary(trials, failing[0], 1.0)

    assert found is None or found.condition.feature != "dim_qk"
