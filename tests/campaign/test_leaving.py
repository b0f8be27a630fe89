"""A worker leaves its batch for a finding that waits, in the last half of the time; nothing of the batch is lost by that."""

import itertools
from types import SimpleNamespace

import pytest

from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.leaving import Leaving
from tests.campaign.test_explaining import campaign


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Waiting:
    """An explainer with a task."""

    task = True

    def waits(self, searching):
        return self.task


@pytest.fixture
def leaving():
    clock, explainer = Clock(), Waiting()
    budget = Budget(60.0, 7.5, clock=clock)
    explaining = Explaining(budget, 2, share=1 / 3, least=None, clock=clock)
    return SimpleNamespace(
        clock=clock, explainer=explainer, explaining=explaining, made=Leaving(explainer, explaining, budget, clock)
    )


def test_a_batch_is_left_once_half_of_the_time_is_over_and_not_again_at_once(leaving):
    assert not leaving.made.due(beside=True)
    leaving.clock.now += 31
    assert leaving.made.due(beside=True)
    assert not leaving.made.due(beside=True)
    leaving.clock.now += 6
    assert leaving.made.due(beside=True)


@pytest.mark.parametrize("why", ["nothing waits", "a worker explains", "cases come first"])
def test_a_batch_goes_on(leaving, why):
    leaving.clock.now += 31
    leaving.explainer.task = why != "nothing waits"
    if why == "a worker explains":
        leaving.explaining.begin(1, 5.0)

    assert not leaving.made.due(beside=why != "cases come first")


def test_without_a_time_budget_there_is_no_hurry():
    clock = Clock()
    budget = Budget(None, 7.5, clock=clock)
    made = Leaving(Waiting(), Explaining(budget, 2, share=1 / 3, least=None, clock=clock), budget, clock)

    assert not made.due(beside=True)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_cases_of_a_batch_that_was_left_are_those_of_one_that_was_not(tmp_path, monkeypatch):
    campaign(tmp_path / "whole", "two", max_cases=40, workers=1)
    turns = itertools.count()
    monkeypatch.setattr(Leaving, "due", lambda self, *, beside: next(turns) % 7 == 3)
    campaign(tmp_path / "left", "two", max_cases=40, workers=1)

    whole, left = ([r.case for r in open_run(tmp_path / name).results()] for name in ("whole", "left"))
    assert next(turns) > 7, "no batch was left"
    assert left == whole
