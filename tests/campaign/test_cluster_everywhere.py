"""What a process on every machine of a cluster is to the supervisor, and what one of its parts is."""

import os
from pathlib import Path

import pytest

from flashverify.campaign.cluster.everywhere import EverywhereHost, EverywhereWorker
from flashverify.campaign.cluster.messages import Report
from flashverify.campaign.cluster.remote_worker import RemoteWorker
from flashverify.campaign.protocol import Prepared, Started, encode
from flashverify.campaign.supervisor.hosts import Outage
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.campaign.worker.inflight import Inflight


def parts(sent=None, ended=None):
    """Processes of two machines; what they are told, and which of them are ended, by number."""
    sent, ended = [] if sent is None else sent, [] if ended is None else ended
    return [
        RemoteWorker(lambda line, n=n: sent.append((n, line)), lambda n=n: ended.append(n)) for n in range(2)
    ]  # fmt: skip


def over(code=None, printed="", case=""):
    return Report(0, over=True, code=code, printed=printed, in_flight=Inflight("s", "n", case) if case else None)


def test_what_every_machine_is_told_and_what_it_weighs():
    sent, ended = [], []
    first, second = found = parts(sent, ended)
    worker = EverywhereWorker(found)
    first.take(Report(0, memory=5))
    second.take(Report(0, memory=9))
    worker.send(Started())

    assert sent == [(0, encode(Started())), (1, encode(Started()))]
    assert worker.descriptors == (*first.descriptors, *second.descriptors)
    assert (worker.memory(), worker.code(), worker.printed(), worker.in_flight()) == (9, None, "", None)
    worker.kill()
    assert ended == [0, 1]
    for each in found:
        each.take(over())
    worker.close()
    assert [each.descriptors for each in found] == [(-1,), (-1,)]


def test_to_close_is_to_end_all_before_any_is_waited_for():
    told = []

    class Part:
        def __init__(self, name):
            self.kill, self.close = (lambda what=what: told.append(what + name) for what in ("kill ", "close "))

    EverywhereWorker([Part("a"), Part("b")]).close()
    assert told == ["kill a", "kill b", "close a", "close b"]


def test_the_case_and_the_words_are_of_one_that_died_not_of_one_that_was_ended():
    first, second = found = parts()
    worker = EverywhereWorker(found)
    first.take(over(case="fv1 seq_q=1"))
    assert (worker.in_flight(), worker.code()) == (None, -9)
    second.take(over(code=3, printed="why", case="fv1 seq_q=2"))

    assert worker.in_flight() == Inflight("s", "n", "fv1 seq_q=2")
    assert worker.printed() == "why"
    worker.close()


def test_the_outage_of_any_machine_is_that_of_all():
    first, second = found = parts()
    worker, outage = EverywhereWorker(found), Outage("b", 1, "killed", final=False)
    assert worker.outage is None
    second.lose(outage)

    assert (worker.outage, worker.code()) == (outage, -9)
    first.take(over())
    worker.close()


def test_answers_are_put_together_in_their_order_with_the_cases_that_all_have():
    first, second = found = parts()
    worker = EverywhereWorker(found)
    first.take(Report(0, encode(Prepared("k", ("c", "a", "b"), 1, launches=9, compiled=2)) + encode(Prepared("k", ()))))
    assert worker.read() == []
    later = Prepared("k", ("z",), 1)
    second.take(Report(0, b"".join(map(encode, (Prepared("k", ("a", "x", "c"), 1, 4, 5), Prepared("k", ()), later)))))

    assert worker.read() == [Prepared("k", ("c", "a"), 1, 9, 5), Prepared("k", ())]
    first.take(Report(0, encode(later)))
    assert worker.read() == [later]


def test_no_machine_at_all_is_a_dead_worker():
    host = EverywhereHost(lambda setup: [])
    worker = host.compiling().start(ProcessSetup("t", "cuda", 1.0), 0, Path("note"))
    host.close()

    assert (worker.code(), worker.read(), worker.memory(), worker.descriptors) == (-9, [], 0, ())


def test_a_worker_that_is_lost_hears_nothing_and_is_closed_once():
    sent, ended = [], []
    worker, other = parts(sent, ended)
    worker.take(Report(0, memory=3))
    assert not os.get_blocking(worker.descriptors[0])
    with pytest.raises(BlockingIOError):
        os.read(worker.descriptors[0], 1)
    worker.take(Report(0, encode(Started())))
    assert os.read(worker.descriptors[0], 9) == b"x", "the supervisor is woken by events alone"

    outage = Outage("a", 1, "killed", final=False)
    worker.lose(outage)
    worker.send(Started())
    worker.kill()
    assert (sent, ended, worker.code(), worker.died, worker.outage) == ([], [], -9, False, outage)
    assert os.read(worker.descriptors[0], 9) == b"x", "and by the end"
    worker.close()
    worker.close()
    worker.take(Report(0, encode(Started())))
    other.take(over(code=0))
    other.lose(outage)
    assert (other.code(), other.died, other.outage) == (0, True, None)
    other.close()
