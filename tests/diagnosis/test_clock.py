"""A diagnosis has seconds of work: those in which the machine had no processor for it do not count, up to a limit."""

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.neighbours import neighbours
from flashverify.diagnosis.trials import Trials
from flashverify.starvation import starved_here, starved_there
from tests.diagnosis.planted import Plain
from tests.diagnosis.test_diagnosis import FORWARD

CASE = parse_case(FORWARD)


class Machine:
    """A machine that lets whoever works wait for a processor, for a share of the time."""

    def __init__(self, waits=0.0, looks=0.0):
        self.now, self.waited, self.share, self.looks = 100.0, 7.0, waits, looks

    def passes(self, seconds):
        self.now += seconds
        self.waited += self.share * seconds

    def wall(self):
        self.passes(self.looks)
        return self.now

    def clock(self, slowest=0.0):
        return Clock(slowest, wall=self.wall, starved=lambda: self.waited)


def test_seconds_without_a_processor_do_not_count():
    machine = Machine(waits=0.75)
    clock = machine.clock()
    machine.passes(40.0)
    assert clock() == pytest.approx(10.0)


def test_what_the_subject_waits_for_counts():
    machine = Machine()
    clock = machine.clock()
    machine.passes(3.0)  # a GPU, another process, a sleep: no processor is asked for
    assert clock() == pytest.approx(3.0)


def test_a_limit_on_the_wall_clock_holds_on_any_machine():
    machine = Machine(waits=1.0)
    clock = machine.clock(slowest=0.25)
    end = clock.end(10.0)
    machine.passes(39.0)
    assert not end.over
    machine.passes(2.0)
    assert end.over


def test_a_limit_that_leaves_no_more_than_the_seconds_is_the_wall_clock():
    assert Clock.ending(10.0, 40.0)._slowest == 0.25
    assert (
        Clock.ending(10.0, 10.0)._slowest == Clock.ending(10.0, 2.0)._slowest == Clock.ending(0.0, 0.0)._slowest == 1.0
    )


def test_it_never_goes_back():
    machine = Machine()
    clock = machine.clock()
    machine.passes(2.0)
    assert clock() == pytest.approx(2.0)
    machine.waited += 1.5  # told late
    assert clock() == pytest.approx(2.0)


def test_ends():
    machine = Machine()
    clock = machine.clock()
    end = clock.end(10.0)
    machine.passes(4.0)
    assert end.left == pytest.approx(6.0)
    assert end.part(0.5).left == pytest.approx(3.0)
    assert end.within(2.0).left == pytest.approx(2.0)
    assert end.within(8.0) == end
    assert end.after(8.0).left == pytest.approx(8.0)
    assert end.after(2.0) == end


def test_a_busy_machine_runs_as_many_cases():
    def ran(machine, slowest):
        trials = Trials(Plain(), 10.0, clock=machine.clock(slowest))
        return [scene.case for scene in trials.of(neighbours(Plain.supports, CASE))]

    quiet = ran(Machine(looks=0.5), 0.25)
    busy = {"looks": 1.5, "waits": 2 / 3}
    assert len(quiet) > 4
    assert ran(Machine(**busy), 0.25) == quiet
    assert len(ran(Machine(**busy), 1.0)) < len(quiet) / 2


def test_this_thread_waits_with_those_that_work_for_it():
    before = starved_here()
    starved_there(5.0)
    assert starved_here() - before > 4.9
    starved_there(-5.0)
