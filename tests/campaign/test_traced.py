"""A search of a subject that torch traces: what each worker compiles for itself, and what is judged meanwhile."""

import importlib

import pytest

from flashverify.campaign.protocol import Batch, Chunk, Prepared, PutOff
from flashverify.campaign.store.stats import Stats, read_stats, stats_sentence
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor import gpu
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.handed import Handed
from flashverify.campaign.supervisor.readiness import Readiness
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.worker import traced
from flashverify.campaign.worker.trace_pace import TracePace
from flashverify.campaign.worker.traced import TracedKinds
from flashverify.case.text import parse_case
from flashverify.launching.traces import traces


@pytest.fixture
def log(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    monkeypatch.setenv("PRETENDED_KERNELS", str(tmp_path / "kernels"))
    return tmp_path / "kernels" / "log"


@pytest.mark.slow
def test_workers_draw_from_kinds_that_they_compiled_themselves(tmp_path, log, monkeypatch):
    monkeypatch.setattr(gpu, "architecture", lambda: "")
    config = CampaignConfig(
        kind="fuzz",
        subjects=("clean",),
        out=tmp_path / "run",
        device="cuda",
        toolkit="tracing_toolkit:toolkit",
        workers=2,
        compilers=1,
        batch=40,
        max_cases=200,
        case_limit=20.0,
    )
    summary = Engine(config).run()
    stats, judged = read_stats(config.out), [parse_case(each.case) for each in open_run(config.out).results()]

    assert (summary.exit_code, summary.cases) == (0, 200)
    compiled = [line.split()[1] for line in log.read_text().splitlines() if line.startswith("traced")]
    assert {f"dim-{case.dim_v}{'' if case.seq_k > 16 else '-short'}" for case in judged} == set(compiled)
    assert stats.traced == stats.compiled == stats.compiled_by_workers == len(compiled)
    assert 2 <= stats.kinds <= 12
    assert f"{stats.traced} functions compiled" in stats_sentence(stats)


class Worker:
    """What `TracedKinds` needs of a session, with a clock that stands."""

    def __init__(self):
        self.toolkit = importlib.import_module("tracing_toolkit").TracingToolkit()
        self.opened, self.traced, self.events, self.judged = 0, {}, [], []

    def subject(self, spec):
        return type("Subject", (), {"name": spec})

    def judge(self, spec, case, plan):
        self.toolkit._trace(f"dim-{case.dim_v}{'' if case.seq_k > 16 else '-short'}")
        self.judged.append(case)
        return case

    def emit(self, event):
        self.events.append(event)

    def clear(self):
        pass


def batch(number):
    return Batch("clean", number, number, 20, traced=True)


def settled(monkeypatch, *, grows):
    """Kinds of a worker whose first seconds are over."""
    kinds = TracedKinds(Worker(), "clean")
    monkeypatch.setattr(TracePace, "may_open", lambda self, elapsed: not self.opened)
    monkeypatch.setattr(TracePace, "may_grow", lambda self, elapsed: grows)
    return kinds


@pytest.mark.parametrize("grows", [False, True])
def test_a_case_that_asks_for_more_than_the_worker_may_compile_is_left(log, monkeypatch, grows):
    kinds = settled(monkeypatch, grows=grows)
    results = [(case, kinds.drawn(case)) for number in (3, 4) for case in kinds.cases(batch(number), 20)]
    worker, left = kinds._session, [case for case, found in results if found is None]

    assert kinds.kinds == [3]
    assert worker.opened == 1
    assert {case.dim_v for case, _ in results} == {32}
    assert results[0][0].seq_k > 16
    assert worker.judged == [case for case, found in results if found is not None]
    assert [event for event in worker.events if isinstance(event, PutOff)] == [
        PutOff("clean", str(case), left=True) for case in left
    ]
    assert all(case.seq_k <= 16 for case in left)
    assert bool(left) is not grows


def test_the_kinds_of_workers_follow_the_numbers_of_their_batches(log, monkeypatch):
    monkeypatch.setattr(TracePace, "may_open", lambda self, elapsed: True)
    kinds = TracedKinds(Worker(), "clean")
    for number in (4, 4, 5, 11, 0, 0, 0):
        next(iter(kinds.cases(batch(number), 5)))

    assert kinds.kinds == [4, 5, 0, 1, 2, 3]


def test_a_first_call_that_asks_for_two_compilations_has_both(log, monkeypatch):
    kinds = settled(monkeypatch, grows=False)
    worker, judge = kinds._session, kinds._session.judge

    def broken(spec, case, plan):
        worker.toolkit._trace("before the break")
        return judge(spec, case, plan)

    worker.judge = broken
    assert next(kinds.drawn(case) for case in kinds.cases(batch(0), 1)) is not None
    assert kinds._pace.growing == 0.0 < kinds._pace.opening


def test_a_listed_case_is_judged_and_its_further_compilations_are_spared(log, monkeypatch):
    kinds = settled(monkeypatch, grows=False)
    worker, case = kinds._session, parse_case("fv1 dim_v=40 seq_k=20")
    worker.traced["clean"] = kinds
    allowed = []
    monkeypatch.setattr(worker, "judge", lambda *given: allowed.extend((traces.allowed(), traces.allowed())) or given)

    assert traced.judge_listed(worker, Chunk("clean", (), "fuzz", sparing=True), case) == ("clean", case, "fuzz")
    assert allowed == [True, False]
    allowed.clear()
    traced.judge_listed(worker, Chunk("clean", (), "fuzz"), case)
    assert allowed == [True, True]


def test_the_pace_is_free_at_first_and_a_share_of_the_time_later():
    pace = TracePace()
    assert pace.may_open(10.0)
    assert pace.may_grow(0.0)
    for _ in range(5):
        pace.opened += 1
        pace.spend(12.0, opening=True)
    pace.spend(20.0, opening=False)

    assert pace.may_open(80.0)
    assert not pace.may_grow(79.0)
    assert pace.may_grow(81.0)
    assert not pace.may_open(100.0)
    assert not pace.may_open(289.0)
    assert pace.may_open(291.0)
    assert pace.may_grow(91.0)
    pace.spend(8.0, opening=False)
    assert not pace.may_grow(289.0)
    assert pace.may_grow(291.0)


def test_cases_of_the_corpus_come_one_at_a_time_where_torch_traces_the_subject():
    handed, chunk = Handed(), Chunk("s", ("a", "b", "c"), "fuzz", "corpus s")
    handed.add(chunk, spaced=True)
    first = handed.next(0, last=False)

    assert (first.cases, first.sparing, first.origin) == (("a",), True, "corpus s")
    assert handed.next(1499, last=False) is None
    assert handed.next(1500, last=False).cases == ("b",)
    assert handed.next(1501, last=True).cases == ("c",)
    assert not handed
    handed.add(chunk, spaced=False)
    assert handed.next(0, last=False) == chunk


def test_nothing_is_compiled_ahead_of_a_subject_that_torch_traces():
    ready = Readiness(("s",), 0)
    ready.listed(Chunk("s", ("a", "b"), "fuzz", "corpus s"))
    task = ready.next(0, 0.0)
    ready.prepared(Prepared("s", (), task.kind, traced=True))
    ready.leave()

    assert ready.off == ready.traced == {"s"}
    assert ready.kinds("s") is None
    assert ready.chunk(None).cases == ("a",)
    assert ready.chunk(None) is None
    assert (ready.waiting, ready.lists_wait) == (1, True)
    assert ready.chunk(0).cases == ("b",)
    assert (ready.put_off, ready.dropped) == (1, 1)


def test_the_words_of_the_counts_name_functions_apart_from_kernels():
    counts = {"seconds": 9.0, "workers": 2, "cases": 10}

    assert "2 kernels and 1 function compiled" in stats_sentence(Stats(compiled=3, traced=1, **counts))
    assert "3 kernels compiled" in stats_sentence(Stats(compiled=3, **counts))
