"""A worker that waits for a processor does not hang; one that has a processor, or waits for something else, does."""

import os
import time

import pytest

from flashverify.campaign.protocol import Judge
from flashverify.campaign.supervisor.slots import Slot, starving
from flashverify.starvation import starved


class Waiting:
    """A process that has waited so many seconds for a processor."""

    def __init__(self):
        self.seconds = 100.0

    def starved(self):
        return self.seconds


@pytest.fixture
def slot():
    slot = Slot(0, Waiting(), task=Judge("fv1", "subject", "fuzz"))
    slot.sign(60.0)
    return slot


def test_time_in_which_it_had_no_processor_does_not_count(slot):
    begun = slot.since
    assert not slot.hangs(begun + 59)
    assert slot.hangs(begun + 61)
    slot.process.seconds += 40
    assert not slot.hangs(begun + 99)
    assert slot.hangs(begun + 101)


def test_a_sign_of_life_begins_anew(slot):
    slot.process.seconds += 40
    slot.looked -= 2
    slot.sign(60.0)
    assert slot.hangs(slot.since + 61)


def test_what_it_waited_is_asked_once_a_second(slot):
    slot.process.seconds += 0.5
    slot.sign(60.0)
    assert not slot.hangs(slot.since + 60.4)
    assert slot.hangs(slot.since + 60.6)


def test_a_worker_without_a_task_does_not_hang(slot):
    slot.task = None
    assert not slot.hangs(slot.since + 1000)


def test_of_a_process_that_is_gone_nothing_is_known():
    assert starved(2**31 - 1) == 0.0
    assert 0 <= starved(os.getpid()) <= time.monotonic()


def test_the_share_of_the_time_in_which_workers_wait_is_told():
    now = time.monotonic()
    slots = [Slot(n, Waiting(), started=now - 200.0) for n in range(2)]

    assert starving(slots) == pytest.approx(0.5, abs=0.01)
    assert starving([]) == 0.0
