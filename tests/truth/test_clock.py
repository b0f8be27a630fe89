"""The time of the oracle is counted once, however its functions call each other."""

import pytest

from flashverify import judge_case, parse_case, subject
from flashverify.case.supports import Supports
from flashverify.truth import clock


class _Time:
    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def watch(monkeypatch):
    watch = _Time()
    monkeypatch.setattr(clock, "time", watch)
    return watch


def test_nested_functions_count_once_and_a_failing_one_too(watch):
    @clock.timed
    def inner(seconds):
        watch.now += seconds
        if seconds > 5:
            raise ValueError(seconds)

    @clock.timed
    def outer():
        watch.now += 1.0
        inner(2.0)

    before = clock.oracle_seconds()
    outer()
    with pytest.raises(ValueError, match="7"):
        inner(7.0)
    inner(0.5)

    assert clock.oracle_seconds() - before == 10.5


def test_judging_a_case_takes_the_oracle_some_time():
    @subject(supports=Supports(dtypes=("fp32",)), device="cpu")
    def mine(p):
        s = p.q @ p.k.mT * p.scale
        return s.softmax(-1) @ p.v, s.logsumexp(-1)

    before = clock.oracle_seconds()
    judge_case(mine, parse_case("fv1 seq_q=3 seq_k=3 dim_qk=8 dim_v=8 dtype=fp32"))

    assert clock.oracle_seconds() > before
