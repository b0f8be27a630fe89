"""A group of workers on its own machine: in what order it starts, feeds, reads and ends them, and what it says of them."""

import contextlib
import os
import threading
from pathlib import Path

import msgspec
import pytest

from flashverify.campaign.cluster import group as module
from flashverify.campaign.cluster.group import WorkerGroup
from flashverify.campaign.cluster.messages import Hello, Report, decode_reports
from flashverify.campaign.environment import versions
from flashverify.campaign.kernel_cache import torch_environment
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.campaign.worker.inflight import Inflight

SETUP = ProcessSetup("t", "cpu", 1.0)
LAST = Inflight("spec", "name", "fv1")


class Process:
    """A worker without a process: it says `data` and ends with `ends`."""

    def __init__(self, setup=SETUP, note=None, data=b"", ends=None):
        self.setup, self.note, self.data, self.ends, self.calls, self.sent = setup, note, data, ends, [], []
        self.descriptors = ()

    def code(self):
        self.calls.append("code")
        return self.ends

    def received(self):
        self.calls.append("received")
        data, self.data = self.data, b""
        return data

    def send_line(self, line):
        self.sent.append(line)

    def memory(self):
        return 7

    def close(self):
        self.calls.append("close")

    def printed(self):
        return "why"

    def in_flight(self):
        return LAST


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setattr(module, "WorkerProcess", Process)
    found = WorkerGroup(("spec",))
    yield found
    found.close()


def started(group, key, setup=SETUP, **changes):
    """A worker that runs, with other words or another end."""
    group.start(key, msgspec.json.encode(setup))
    group.poll(0.0)
    process = group._processes[key]
    for name, value in changes.items():
        setattr(process, name, value)
    return process


def polled(group):
    return decode_reports(group.poll(0.0))


def test_it_says_what_its_machine_is(group):
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    assert msgspec.msgpack.decode(group.hello(), type=Hello) == Hello(versions(), memory, module.architecture())


def test_each_worker_has_a_note_of_its_own_and_gets_its_lines_in_their_order(group):
    first, second = started(group, 0), started(group, 5)
    group.send(5, b"a")
    group.send(0, b"b")
    group.send(5, b"c")
    group.send(9, b"nobody")

    assert polled(group) == [Report(0, memory=7), Report(5, memory=7)]
    assert (first.sent, second.sent) == ([b"b"], [b"a", b"c"])
    assert {first.note.name, second.note.name} == {"0.json", "5.json"}
    assert first.setup == SETUP


@pytest.mark.parametrize(
    ("device", "environment", "found"),
    [
        ("cuda", {"A": "1"}, {"A": "1", "TRITON_CACHE_DIR": "spec/cache"}),
        ("cuda", {"TRITON_CACHE_DIR": "mine"}, {"TRITON_CACHE_DIR": "mine"}),
        ("cpu", {"A": "1"}, {"A": "1"}),
    ],
)
def test_a_worker_on_a_gpu_keeps_its_kernels_on_its_machine(group, monkeypatch, device, environment, found):
    cache = "TRITON_CACHE_DIR"
    monkeypatch.setattr(module, "cache_environment", lambda specs, environ: {cache: f"{specs[0]}/cache"})
    setup = msgspec.structs.replace(SETUP, device=device, environment=environment)

    assert started(group, 0, setup).setup.environment == found


def test_the_cache_of_a_machine_is_the_one_that_its_own_environment_names(group, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/there")
    for name in torch_environment("/there", {}):  # torch sets some itself, once it has compiled
        monkeypatch.delenv(name, raising=False)

    found = started(group, 0, msgspec.structs.replace(SETUP, device="cuda")).setup.environment

    assert found == {"TRITON_CACHE_DIR": "/there"} | torch_environment("/there", {})


def test_what_a_dead_worker_said_is_read_after_it_was_seen_dead_and_its_note_is_removed(group):
    process = started(group, 3, data=b"last", ends=-11)
    process.note.write_text("x", encoding="utf-8")
    process.calls.clear()

    assert polled(group) == [Report(3, b"last", over=True, code=-11, printed="why", in_flight=LAST)]
    assert process.calls == ["code", "received", "close"]
    assert not process.note.exists()
    assert polled(group) == []


def test_a_dead_worker_is_over_when_all_that_it_said_is_told(group, monkeypatch):
    monkeypatch.setattr(module, "_ANSWER_BYTES", 4)
    dead, alive = started(group, 0), started(group, 1)
    dead.data, dead.ends, alive.data = b"abcdef", 1, b"ghij"
    first, second, third = polled(group), polled(group), polled(group)

    assert [(r.key, r.events, r.over) for r in first] == [(0, b"abcd", False), (1, b"", False)]
    assert [(r.key, r.events, r.over, r.code) for r in second] == [(0, b"ef", True, 1), (1, b"gh", False, None)]
    assert [(r.key, r.events) for r in third] == [(1, b"ij")]


def test_a_worker_that_is_ended_says_its_last_and_what_it_had_to_say_is_dropped(group, monkeypatch):
    monkeypatch.setattr(module, "_ANSWER_BYTES", 1)
    process = started(group, 2, data=b"abc")
    polled(group)
    group.end(8)
    group.end(2)

    assert polled(group) == [Report(2, over=True, printed="why", in_flight=LAST)]
    assert "close" in process.calls
    assert (group._processes, group._unsent, polled(group)) == ({}, {}, [])


def test_a_poll_that_waits_comes_back_with_an_order_and_one_with_news_does_not_wait(group, monkeypatch):
    process = started(group, 0)
    waiting = threading.Thread(target=group.poll, args=(60.0,))
    waiting.start()
    group.send(0, b"a")
    waiting.join(30)
    assert not waiting.is_alive()
    assert process.sent == [b"a"]

    waits = []
    monkeypatch.setattr(module.selectors.DefaultSelector, "select", lambda self, seconds: waits.append(seconds) or [])
    group._unsent[0] = b"x"
    group.poll(60.0)
    group._unsent[0], group._over = b"", [Report(4, over=True)]
    assert [r.key for r in polled(group)] == [0, 4]
    assert (waits, group._over) == ([], [])
    group.poll(60.0)
    assert waits == [60.0]


def test_a_poll_that_waits_comes_back_when_a_worker_says_something(group):
    heard, says = os.pipe()
    process = started(group, 0, descriptors=(heard,))
    waiting = threading.Thread(target=group.poll, args=(60.0,))
    waiting.start()
    os.write(says, b"x")
    waiting.join(30)

    assert not waiting.is_alive()
    process.descriptors = ()
    for descriptor in (heard, says):
        os.close(descriptor)


def test_an_order_that_finds_a_group_awake_waits_for_nobody(group):
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(group._wake, bytes(65536))
    group.send(9, b"nobody")

    assert polled(group) == []
    assert not group._orders


def test_the_end_of_a_group_is_that_of_its_workers_and_of_its_files(monkeypatch):
    monkeypatch.setattr(module, "WorkerProcess", Process)
    group = WorkerGroup(("spec",))
    processes = [started(group, key) for key in range(2)]
    folder, pipe = Path(group._folder.name), (group._woken, group._wake)
    assert folder.is_dir()
    group.close()

    assert ["close" in process.calls for process in processes] == [True, True]
    assert (group._processes, folder.exists()) == ({}, False)
    for descriptor in pipe:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
