"""The supervisor's side of a group: which worker hears what, and what is left of all of them where the group is lost."""

import queue
import threading

import pytest

from flashverify.campaign.cluster import link as module
from flashverify.campaign.cluster.link import ActorLostError, Link
from flashverify.campaign.cluster.messages import Report, encode_reports
from flashverify.campaign.cluster.planning import Node, Place
from flashverify.campaign.protocol import Started, encode
from flashverify.campaign.supervisor.hosts import Outage

PLACE = Place("a/cpu", Node("id", "a", 2, 0), 2, gpu=False)


class Scripted:
    """A group that answers what the test says, and notes what it is told."""

    def __init__(self):
        self.told, self.asked, self.answers, self.kills = [], [], queue.Queue(), 0
        self.idle = threading.Event()

    def tell(self, method, *arguments):
        self.told.append((method, *arguments))

    def ask(self, method, *arguments, seconds):
        self.asked.append((method, *arguments, seconds))
        if self.answers.empty():
            self.idle.set()
        answer = self.answers.get(timeout=60)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def say(self, *reports):
        """What the next answer is; waits until it was heard."""
        self.idle.clear()
        self.answers.put(encode_reports(list(reports)))
        assert self.idle.wait(30)

    def kill(self):
        self.kills += 1
        self.answers.put(ActorLostError("ended"))


@pytest.fixture
def linked():
    actor = Scripted()
    link = Link(PLACE, actor, 4, lambda: True)
    assert actor.idle.wait(30)
    yield link, actor
    link.close()


def lost(error, alive=lambda: True):
    """A link with two workers whose group is lost by an error."""
    actor = Scripted()
    link = Link(PLACE, actor, 4, alive)
    workers = [link.start(b"setup") for _ in range(2)]
    actor.answers.put(error)
    link._thread.join(30)
    return link, actor, workers


def test_each_worker_has_a_key_and_tells_the_group_by_it(linked):
    link, actor = linked
    first, second, _third = (link.start(each) for each in (b"one", b"two", b"three"))
    second.send_line(b"line")
    first.kill()

    assert actor.told[:3] == [("start", 0, b"one"), ("start", 1, b"two"), ("start", 2, b"three")]
    assert actor.told[3:] == [("send", 1, b"line"), ("end", 0)]
    assert set(actor.asked) == {("poll", module._POLL, module._SILENT)}
    assert module._POLL < module._SILENT
    assert link.outage is None


def test_news_go_to_the_worker_that_they_are_of_and_none_follow_its_end(linked):
    link, actor = linked
    first, second = link.start(b""), link.start(b"")
    line = encode(Started())
    actor.say(Report(1, line, memory=5), Report(7, line))
    assert (first.read(), second.read(), second.memory()) == ([], [Started()], 5)

    actor.say(Report(1, line, over=True, code=3), Report(1, line))
    actor.say(Report(0, line), Report(1, line))
    assert (second.read(), second.code(), second.outage) == ([Started()], 3, None)
    assert (first.read(), first.code()) == ([Started()], None)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ActorLostError("killed"), "killed"), (ActorLostError(), "ActorLostError"), (b"\xff", ""), (OSError(), "OSError")],
)
def test_a_group_that_is_lost_is_ended_and_takes_its_workers_along(error, reason):
    link, actor, workers = lost(error)

    assert link.outage == Outage("a/cpu", 4, reason or link.outage.reason, final=False)
    assert link.outage.reason
    assert [(worker.outage, worker.code()) for worker in workers] == [(link.outage, -9)] * 2
    assert actor.kills == 1, "one that is silent may still judge"
    link.close()


def gone():
    raise ConnectionError


@pytest.mark.parametrize(("alive", "final"), [(lambda: True, False), (lambda: False, True), (gone, True)])
def test_an_outage_is_final_where_the_machine_is_gone_or_nobody_can_be_asked(alive, final):
    link, _, _ = lost(ActorLostError("killed"), alive)

    assert link.outage.final is final
    link.close()


def test_a_worker_that_ended_before_is_not_lost_and_one_that_comes_after_is():
    actor = Scripted()
    link = Link(PLACE, actor, 1, lambda: True)
    ended = link.start(b"")
    actor.say(Report(0, over=True, code=0))
    actor.answers.put(ActorLostError("killed"))
    link._thread.join(30)
    told = len(actor.told)
    late = link.start(b"late")

    assert (ended.code(), ended.outage) == (0, None)
    assert (late.code(), late.outage) == (-9, link.outage)
    assert len(actor.told) == told, "there is nobody to tell"
    link.close()


def test_a_group_that_is_closed_is_no_outage(linked):
    link, actor = linked
    worker = link.start(b"")
    link.close()

    assert not link._thread.is_alive()
    assert (link.outage, worker.outage, actor.kills) == (None, None, 1)
