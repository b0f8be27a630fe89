"""Time and memory of both sides. No real time is asserted: the clocks are made up."""

import importlib
import json
from types import SimpleNamespace

import pytest
import torch

from flashverify.adapters.torch_cpu import TORCH_CPU
from flashverify.bench import Workload
from flashverify.bench.problems import problem_of
from flashverify.bench.spread import Spread
from flashverify.comparing.comparison import compare_sides
from flashverify.comparing.judged_sides import JudgedSides
from flashverify.comparing.speed import stopwatch
from flashverify.comparing.speed.rounds import ROUNDS, timed
from flashverify.comparing.speed.speed_words import speed_cells, speed_doubts, summary
from flashverify.comparing.speed.stopwatch import Stopwatch, shapes
from flashverify.comparing.speed.times import Speed, Speeds
from flashverify.comparing.thresholds import Thresholds
from flashverify.errors import NoVerdictError
from tests.report.synthetic import result, stats, write_run

SHAPE = Workload(
    batch=1, heads_q=1, heads_kv=1, seq_q=8, seq_k=8, dim=16, dtype="fp32", causal=False, direction="forward"
)
MIB = 2**20


class Clock:
    """A process whose calls take made-up times: `step` more at each, in units of a thousandth, `factor` times as long."""

    def __init__(self, factor=1.0, memory=None, fails="", dies=False):
        self.factor, self.memory, self.fails, self.dies, self.log = factor, memory, fails, dies, []

    def shapes(self, among=None):
        return (SHAPE,) if among is None else tuple(among), "NVIDIA X (sm_90)"

    def prepare(self, workload):
        assert workload == SHAPE
        return self.fails or (self.factor, self.memory)

    def time(self, calls):
        if self.dies:
            raise NoVerdictError("the process of 'x' ended with -11")
        self.log.append(calls)
        return self.factor * (1 + 0.001 * (len(self.log) % 3))


def speeds(**after):
    return timed(Clock(memory=8 * MIB), Clock(**{"memory": 8 * MIB} | after), Clock(1.002, memory=8 * MIB))


@pytest.mark.parametrize(("count", "left_out"), [(1, 0), (3, 0), (10, 0), (11, 0), (15, 1), (30, 5)])
def test_the_spread_leaves_out_what_a_median_cannot_be_beyond(count, left_out):
    spread = Spread.of([float(n) for n in range(count)][::-1])
    assert (spread.median, spread.low, spread.high) == ((count - 1) / 2, left_out, count - 1 - left_out)


def test_the_sides_take_turns_and_each_begins_as_often():
    order = []

    class Logged(Clock):
        def time(self, calls):
            order.append(self)
            return super().time(calls)

    one, other, again = Logged(), Logged(), Logged()
    timed(one, other, again)
    assert len(order) == 3 * ROUNDS
    assert order[:6] == [one, other, again, other, again, one]
    assert {order[::3].count(each) for each in (one, other, again)} == {ROUNDS // 3}


@pytest.mark.parametrize(
    ("factor", "change"), [(1.0, "none"), (1.002, "none"), (1.02, "slower"), (0.98, "faster"), (0.999, "none")]
)
def test_a_change_is_one_beyond_what_a_side_differs_from_itself(factor, change):
    found = speeds(factor=factor)
    assert found.change_of(found.rows[0]) == change
    assert found.rows[0].ratio.median == pytest.approx(factor)


def test_noise_at_one_shape_counts_for_the_others_of_its_length():
    times = tuple(1 + 0.001 * (n % 3) for n in range(15))
    calm = Speed(workload=SHAPE, before=times, after=tuple(1.2 * t for t in times), again=times)
    wild = Speed(workload=SHAPE, before=times, after=times, again=tuple(1.3 * t for t in times))
    assert Speeds("cpu", (calm,)).change_of(calm) == "slower"
    assert Speeds("cpu", (calm, wild)).change_of(calm) == "none"


def test_slower_is_said_and_a_reason_only_beyond_a_threshold_that_was_set():
    found = speeds(factor=1.2, memory=16 * MIB)
    assert list(speed_doubts(found, Thresholds())) == []
    assert list(speed_doubts(found, Thresholds(time_growth=1.25, memory_growth=2.5))) == []
    time, memory = speed_doubts(found, Thresholds(time_growth=1.1, memory_growth=1.5))
    assert time.startswith("the forward takes 1.2 times as long: x 1.200 (")
    assert memory.startswith("the forward takes 2 times the memory: 8.0 -> 16.0 MiB")
    assert list(speed_doubts(speeds(factor=1.002), Thresholds(time_growth=1.0))) == []


@pytest.mark.parametrize(
    ("after", "doubt"),
    [
        (
            {"fails": "OutOfMemoryError: 9 GiB"},
            "the later side cannot be timed at 1 shape at which the earlier one can",
        ),
        ({"dies": True}, "a process died while it was timed: the process of 'x' ended with -11"),
    ],
)
def test_what_the_later_side_alone_cannot_do_is_a_reason_to_look(after, doubt):
    (found,) = speed_doubts(speeds(**after), Thresholds())
    assert found.startswith(doubt)


def test_what_the_earlier_side_cannot_do_is_no_reason():
    found = timed(Clock(fails=stopwatch.INTERPRETED), Clock(), Clock())
    assert (found.rows, list(speed_doubts(found, Thresholds()))) == ((), [])
    assert summary(found) == f"Not timed: {stopwatch.INTERPRETED}."


def test_the_shapes_are_those_that_a_subject_takes():
    found = shapes(TORCH_CPU, "cpu")
    assert {(w.dtype, w.dim, w.direction, w.causal) for w in found} == {
        ("fp16", 64, direction, causal) for direction in ("forward", "backward") for causal in (False, True)
    }
    decoding = SimpleNamespace(supports=SimpleNamespace(refusal=lambda case: None if case.seq_q == 1 else "no"))
    assert {(w.seq_q, w.seq_k) for w in shapes(decoding, "cuda")} == {(1, 512), (1, 2048), (1, 4096)}


def test_interpreted_kernels_are_not_timed(monkeypatch):
    session = SimpleNamespace(launches=0)
    monkeypatch.setattr(importlib.import_module("flashverify.interpreter.session"), "active", lambda: session)
    watch = Stopwatch(TORCH_CPU, "cpu")
    milliseconds, memory = watch.prepare(SHAPE)
    assert memory is None
    assert milliseconds > 0
    assert watch.times(2) > 0

    def call_of(*_):
        session.launches += 1

    monkeypatch.setattr(stopwatch, "call_of", call_of)
    with pytest.raises(RuntimeError, match="interpreted here") as error:
        watch.prepare(SHAPE)
    assert stopwatch.said(error.value) == stopwatch.INTERPRETED


def test_on_a_gpu_memory_is_what_a_call_takes_beyond_what_it_was_handed(monkeypatch):
    log = []

    def fake(name, value=None):
        monkeypatch.setattr(torch.cuda, name, lambda: log.append(name) or value)

    fake("synchronize")
    fake("reset_peak_memory_stats")
    fake("memory_allocated", 5 * MIB)
    fake("max_memory_allocated", 7 * MIB)
    monkeypatch.setattr(stopwatch, "clock_of", lambda device: lambda call: (call() and None) or 0.5)
    monkeypatch.setattr(stopwatch, "problem_of", lambda workload, device: problem_of(workload, "cpu"))
    assert Stopwatch(TORCH_CPU, "cuda").prepare(SHAPE) == (0.5, 2 * MIB)
    assert log.index("reset_peak_memory_stats") < log.index("max_memory_allocated")


def test_every_form_of_the_comparison_says_it(tmp_path):
    results = [result(f"fv1 seq_q={n}", stats=(stats("o", 0.25),)) for n in range(1, 4)]
    runs = write_run(tmp_path / "before", results), write_run(tmp_path / "after", results)
    found = compare_sides(JudgedSides(runs, speeds=speeds(factor=1.2)), limits=Thresholds(time_growth=1.1))
    said = "Of 1 shape on NVIDIA X, 1 slower (x 1.2 at most)."
    assert found.decision == "look"
    for text in (found.to_text(), found.to_markdown(), found.to_html()):
        assert said in text
        assert str(SHAPE) in text
    (row,) = json.loads(found.to_json())["speeds"]["rows"]
    assert (row["change"], row["peak_memory"], len(row["again_ms"])) == (
        "slower",
        {"before": 8 * MIB, "after": 8 * MIB},
        15,
    )
    assert speed_cells(found.speeds)[0][-2:] == ("slower", "8.0 MiB")
    silent = compare_sides(JudgedSides(runs))
    assert json.loads(silent.to_json())["speeds"] is None
    assert "Speed" not in silent.to_html()
