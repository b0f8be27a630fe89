"""Repeats of a race: what is read too early from memory that a subject keeps must not be the equal value of the pass before."""

import contextlib
import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, determinism, judge_case
from flashverify.checks.passes import timing
from flashverify.subjects import Contract
from tests.checks.naive import SUPPORTS, attention, make

CASE = parse_case("fv1 seq_q=3 seq_k=5 dim_qk=8 dim_v=8 dtype=fp32 backward=no")
PLAN = Plan(checks=("determinism",), questions={"determinism": ("repeat",)})


class ReadsTooEarly:
    """Every other call returns O from the scratch that it kept, before this call has written it."""

    def __init__(self):
        self.calls, self.scratch = 0, None

    def __call__(self, p):
        o, lse = attention(p)
        early = self.scratch if self.calls % 3 == 2 else None
        self.calls, self.scratch = self.calls + 1, o.clone()
        return o if early is None or early.shape != o.shape else early, lse


@pytest.fixture
def stirred(monkeypatch):
    """Repeats as on a GPU, beside no work."""
    times = []

    class Quiet:
        def __init__(self, *_):
            pass

        def stir(self):
            times.append(1)

    monkeypatch.setattr(determinism, "Disturbance", Quiet)
    monkeypatch.setattr(determinism, "_is_concurrent", lambda problem: True)
    return times


def judged(function, contract, **axes):
    supports = dataclasses.replace(SUPPORTS, backward=False, **axes)
    return judge_case(make(function, supports=supports, contract=contract), CASE, PLAN)


def failed(function, **axes):
    return {(v.output, v.error) for v in judged(function, Contract(deterministic=True), **axes).failures}


def test_scratch_of_the_pass_before_is_wrong_in_a_repeat(stirred):
    assert failed(ReadsTooEarly()) == {("o", "repeat")}
    assert stirred


def test_a_right_subject_passes_and_one_of_a_single_seed_is_repeated_alone(stirred):
    def one_seed(case):
        return None if case.values.seed == CASE.values.seed else "another seed"

    assert failed(attention) == set()
    assert failed(attention, also=one_seed) == set()
    assert failed(ReadsTooEarly(), also=one_seed) == set(), "what it reads is equal"
    assert len(stirred) == 3 * determinism._DISTURBED


def test_a_subject_that_promises_nothing_is_repeated_less_and_a_difference_is_a_remark(stirred):
    result = judged(attention, Contract())
    assert (result.failures, result.warnings) == ((), ())
    assert len(stirred) == determinism._MEASURED < determinism._DISTURBED

    result = judged(ReadsTooEarly(), Contract())
    assert result.failures == ()
    assert result.warnings == ("determinism: repeat differs in o",)


def test_every_kind_of_other_work_can_be_queued(monkeypatch):
    class Stream:
        def __init__(self, _):
            pass

        def wait_stream(self, _):
            pass

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    for name, size in {"_ELEMENTS": 64, "_SIDE": 8, "_LARGE_SIDE": 16, "_ROWS": 4, "_LONGEST": 512}.items():
        monkeypatch.setattr(timing, name, size)
    called = set()
    for name in ("mm", "cumsum"):
        work = getattr(torch, name)
        monkeypatch.setattr(
            torch, name, lambda *a, work=work, **k: called.add((work.__name__, a[0].shape)) or work(*a, **k)
        )
    disturbance = timing.Disturbance("cpu", seed=1)
    for _ in range(40):
        disturbance.stir()

    assert called == {("mm", (8, 8)), ("mm", (16, 16)), ("cumsum", (4, 256)), ("cumsum", (4, 512))}
