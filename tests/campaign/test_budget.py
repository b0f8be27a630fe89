"""The clock of a campaign and the share of it for explaining findings, on a clock that only this file moves."""

import pytest

from flashverify.campaign.supervisor.budget import Budget, Explaining


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def explaining(clock, seconds, *, workers=2, least=None):
    budget = Budget(seconds, 120.0, clock=clock)
    return Explaining(budget, workers, share=1 / 3, least=least, clock=clock)


def test_a_minute_ends_within_a_tenth_more(clock):
    budget = Budget(60.0, 120.0, before=5.0, clock=clock)
    clock.now += 50
    assert (budget.elapsed, budget.left, budget.until_the_end) == (55.0, 10.0, 16.0)
    clock.now += 16.0
    assert (budget.left, budget.until_the_end) == (0.0, 0.0)


def test_a_long_budget_has_the_grace_that_it_was_given(clock):
    assert Budget(7200.0, 120.0, clock=clock).until_the_end == 7320.0
    assert Budget(None, 120.0, clock=clock).until_the_end is None


def test_all_slices_together_stay_within_a_third(clock):
    share = explaining(clock, 60.0)
    given = []
    while slice_ := share.next_slice(90.0, searching=True):
        share.begin(0, slice_)
        clock.now += slice_
        share.end(0)
        given.append(slice_)
        clock.now -= slice_  # the wall clock of the other worker is not the subject here
        share._spent += slice_
        if len(given) > 50:
            break

    assert given[0] == 20.0  # half of a third of 60 s on two workers
    assert given == sorted(given, reverse=True)
    assert sum(given) <= 40.0


@pytest.mark.parametrize(("waits", "seconds"), [(0.0, 20.0), (0.5, 30.0), (1.0, 40.0)])
def test_on_a_busy_machine_the_first_finding_gets_more_of_the_share(clock, waits, seconds):
    budget = Budget(60.0, 120.0, clock=clock)
    share = Explaining(budget, 2, share=1 / 3, least=None, clock=clock, waits=lambda: waits)

    assert share.next_slice(90.0, searching=True) == seconds
    share.begin(0, seconds)
    assert share.next_slice(90.0, searching=False) <= 40.0 - seconds


def test_beside_a_search_one_of_two_workers_explains(clock):
    share = explaining(clock, 60.0)
    share.begin(0, share.next_slice(10.0, searching=True))

    assert share.next_slice(10.0, searching=True) == 0.0
    assert share.next_slice(10.0, searching=False) == 10.0


def test_what_a_worker_was_given_is_not_given_twice(clock):
    share = explaining(clock, 60.0)
    share.begin(0, 39.0)

    assert share.next_slice(90.0, searching=False) == 1.0
    share.begin(1, 1.0)
    assert share.next_slice(90.0, searching=False) == 0.0


def test_nothing_begins_that_the_end_would_cut(clock):
    share = explaining(clock, 60.0)
    clock.now += 64.0

    assert share.next_slice(90.0, searching=False) == 2.0
    clock.now += 1.5
    assert share.next_slice(90.0, searching=False) == 0.0


def test_without_a_time_budget_it_is_half_of_the_judging_and_never_less_than_the_least(clock):
    share = explaining(clock, None, least=60.0)
    assert share.next_slice(1000.0, searching=False) == 30.0
    share.judged(400.0)
    assert share.next_slice(1000.0, searching=False) == pytest.approx(100.0)
    assert explaining(clock, None).next_slice(90.0, searching=False) is None


def test_what_is_left_is_said_on_the_wall_clock(clock):
    share = explaining(clock, 60.0)
    share.begin(0, 20.0)
    clock.now += 10.0

    assert share.left == 30.0
    share.begin(1, 10.0)
    assert share.left == 15.0
    clock.now += 100.0
    assert share.left == 0.0
