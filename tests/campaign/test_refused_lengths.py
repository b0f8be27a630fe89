"""What a worker does not draw while torch may compile nothing more: lengths of its kinds that it was found to compile for."""

import importlib

import pytest
from hypothesis import strategies as st

from flashverify.campaign.protocol import Batch, PutOff
from flashverify.campaign.worker.refused_lengths import RefusedLengths
from flashverify.campaign.worker.search import draw
from flashverify.campaign.worker.trace_pace import TracePace
from flashverify.campaign.worker.traced import TracedKinds
from flashverify.case.text import parse_case
from flashverify.launching.compilations import NotCompiled

ONE_KEY = (1, 0)


def opened(kind, text, lengths, *, judged):
    case = parse_case(text)
    lengths.opened(kind, case)
    lengths.tried(case, judged=judged)


@pytest.fixture
def lengths():
    """Kind 1, whose head dim is 16, was refused a single key."""
    found = RefusedLengths()
    opened(1, "fv1 dim_v=16 seq_q=9 seq_k=1", found, judged=False)
    return found


def left_out(lengths, count, *, grows=False):
    """By batch, the classes that are not drawn of two kinds."""
    found = []
    for _ in range(count):
        without = {}

        def of_kind(kind, classes, without=without):
            without[kind] = set(classes)
            return st.just(parse_case("fv1"))

        lengths.cases((1, 2), of_kind, grows=grows)
        found.append(without)
    return found


def test_a_class_that_was_refused_is_drawn_in_every_fourth_batch_alone_and_of_other_kinds(lengths):
    every, most = {1: set(), 2: set()}, {1: {ONE_KEY}, 2: set()}

    assert left_out(lengths, 8) == [every, most, most, most] * 2


def test_every_class_is_drawn_where_torch_may_compile(lengths):
    assert left_out(lengths, 4, grows=True) == [{1: set(), 2: set()}] * 4


def test_a_class_of_which_a_case_was_judged_is_never_left_out(lengths):
    opened(1, "fv1 dim_v=16 seq_q=7 seq_k=1", lengths, judged=True)
    assert lengths.of(1) == set()
    opened(1, "fv1 dim_v=16 seq_q=8 seq_k=1", lengths, judged=False)

    assert lengths.of(1) == set()


def test_a_drawn_case_counts_for_the_kind_of_which_it_was_drawn(lengths):
    case = parse_case("fv1 seq_q=300 seq_k=9")
    drawn = lengths.cases((2,), lambda kind, classes: st.just(case), grows=False)

    assert draw(drawn, 1, 0) == (case,)
    lengths.tried(case, judged=False)
    assert (lengths.of(1), lengths.of(2)) == ({ONE_KEY}, {(2, 1)})


def test_a_case_that_was_not_drawn_of_a_kind_says_nothing(lengths):
    lengths.tried(parse_case("fv1 dim_v=24 seq_q=9 seq_k=300"), judged=False)

    assert (lengths.of(1), lengths.of(2)) == ({ONE_KEY}, set())


def test_a_worker_puts_off_fewer_cases_and_each_is_told(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    monkeypatch.setenv("PRETENDED_KERNELS", str(tmp_path / "kernels"))
    monkeypatch.setattr(TracePace, "may_open", lambda self, elapsed: not self.opened)
    monkeypatch.setattr(TracePace, "may_grow", lambda self, elapsed: False)
    worker = importlib.import_module("test_traced").Worker()
    pretended = importlib.import_module("tracing_toolkit").TracingToolkit()

    def judge(spec, case, plan):
        pretended._trace("one key" if case.seq_k == 1 else "more")
        return case

    worker.judge = judge
    kinds, left = TracedKinds(worker, "clean"), []
    for number in range(8):
        results = [(case, kinds.drawn(case)) for case in kinds.cases(Batch("clean", 3, number, 100, traced=True), 100)]
        left.append([case for case, found in results if found is None])

    told = [event.case for event in worker.events if isinstance(event, PutOff)]
    assert told == [str(case) for cases in left for case in cases]
    assert {case.seq_k for cases in left for case in cases} == {1}
    assert [bool(cases) for cases in left] == [True, False, False, False, True, False, False, False]


def test_a_drawn_case_of_a_class_that_is_left_out_is_put_off_before_it_is_judged(monkeypatch):
    monkeypatch.setattr(TracePace, "may_open", lambda self, elapsed: False)
    monkeypatch.setattr(TracePace, "may_grow", lambda self, elapsed: False)
    worker = importlib.import_module("test_traced").Worker()
    case, asked = parse_case("fv1 seq_q=9 seq_k=1 dim_v=16"), []
    worker.toolkit.of_kinds = lambda subject, kinds, without=frozenset(): st.sampled_from((parse_case("fv1"), case))
    kinds = TracedKinds(worker, "clean")
    kinds.kinds.append(1)

    def judge(spec, case, plan):
        asked.append(case)
        raise NotCompiled

    worker.judge = judge
    for number in range(5):
        assert [kinds.drawn(each) for each in kinds.cases(Batch("clean", 3, number, 9, traced=True), 9)] == [None]

    assert asked == [case] * 2, "in the first and the fifth batch alone"
    assert worker.events == [PutOff("clean", str(case), left=True)] * 5
