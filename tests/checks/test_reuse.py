"""Reuse: what a subject keeps between calls must not change what it returns; each question has a subject that keeps too much."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, judge_case
from flashverify.checks.passes.execution import execute
from flashverify.checks.reuse import questions as reuse
from flashverify.checks.reuse.cuda import Captured
from flashverify.checks.reuse.saved_tensors import Saved
from flashverify.judge.verdict import Status
from flashverify.subjects import Contract, Forward, Gradients, Supports
from tests.checks.naive import attention, make
from tests.checks.test_engine import PLAIN, Wrapped

LENGTHS = parse_case("fv1 batch=2 heads_q=2 heads_kv=1 seq_q=5 seq_k=9 dtype=fp32 klen=4,9 seed=3")


def errors(subject, case=PLAIN, plan=None):
    result = judge_case(subject, case, plan or Plan.only("reuse", case))
    return {v.error for v in result.failures}, result.warnings


class FreesItsGraph:
    """The small attention with a backward that can be called once."""

    def __init__(self):
        self._inner = make(contract=Contract(deterministic=True))
        self.name, self.supports, self.contract = "frees", self._inner.supports, self._inner.contract
        self.form, self.device, self.evidence = self._inner.form, self._inner.device, self._inner.evidence
        self.forward = self._inner.forward

    def backward(self, problem, forward):
        leaves, o, _ = forward.saved
        return Gradients(*torch.autograd.grad(o, tuple(leaves.values()), problem.do))


@pytest.mark.parametrize("case", [PLAIN, LENGTHS], ids=["plain", "lengths"])
def test_a_subject_that_keeps_nothing_passes(case):
    assert errors(make(), case) == (set(), ())


def test_a_graph_that_the_backward_frees_is_a_remark():
    found, warnings = errors(FreesItsGraph())

    assert found == set()
    assert warnings == ("reuse: its graph is freed by the first backward",)


def test_a_result_kept_for_a_shape_fails():
    kept = {}

    def cached(p):
        return kept.setdefault((p.q.shape, p.k.shape), tuple(x.detach() for x in attention(p)))

    assert errors(make(cached), plan=Plan(checks=("reuse",), questions={"reuse": ("values",)}), case=FORWARD)[0] == {
        "values"
    }


FORWARD = dataclasses.replace(PLAIN, grad=dataclasses.replace(PLAIN.grad, backward=False))


def test_a_workspace_that_grew_for_a_larger_problem_fails():
    workspace = [torch.zeros(0)]

    def stale(p):
        o, lse = attention(p)
        if workspace[0].numel() < o.numel():
            workspace[0] = o.detach().clone().flatten()  # the rest of a larger problem stays behind the smaller one
        elif workspace[0].numel() > o.numel():
            o = o + 2.0**-18 * workspace[0][-1]
        return o, lse

    assert errors(make(stale), FORWARD)[0] == {"larger"}


def test_lengths_kept_from_the_first_call_fail():
    kept = {}

    def lengths_of_the_first(p):
        lengths = kept.setdefault(p.q.shape, p.key_lengths.clone())
        return attention(dataclasses.replace(p, key_lengths=lengths))

    case = dataclasses.replace(LENGTHS, grad=FORWARD.grad)

    plan = Plan(checks=("reuse",), questions={"reuse": ("lengths",)})

    assert errors(make(lengths_of_the_first), case, plan)[0] == {"lengths"}


def test_lengths_that_the_subject_refuses_are_not_asked_for():
    seen = []

    def noting(p):
        seen.append(p.case.mask.key_lengths)
        return attention(p)

    long = Supports(
        dtypes=("fp32",),
        masks=("key_lengths",),
        also=lambda case: "too few keys" if min(case.mask.key_lengths or (9,)) < 4 else None,
    )
    assert errors(make(noting, supports=long), LENGTHS)[0] == set()
    assert (2, 4) not in seen
    assert errors(make(noting), LENGTHS)[0] == set()
    assert (2, 4) in seen


def test_a_call_that_drifts_fails_at_the_tenth():
    calls = []

    def drifting(p):
        calls.append(1)
        o, lse = attention(p)
        return o * (1 + 2.0**-20 * (len(calls) > 7)), lse

    plan = Plan(checks=("reuse",), questions={"reuse": ("calls",)})

    assert errors(make(drifting), FORWARD, dataclasses.replace(plan, calls=2))[0] == set()
    assert errors(make(drifting), FORWARD, plan)[0] == {"calls"}


def test_without_a_promise_the_tenth_call_must_be_within_its_bounds():
    def noisy(size):
        calls = []

        def function(p):
            calls.append(1)
            o, lse = attention(p)
            return o * (1 + size * (len(calls) > 1)), lse

        return make(function, contract=Contract())

    plan = Plan(checks=("reuse",), questions={"reuse": ("calls",)})

    assert errors(noisy(2.0**-24), FORWARD, plan)[0] == set()
    assert errors(noisy(2.0**-6), FORWARD, plan)[0] == {"calls"}


def test_a_backward_that_scales_what_was_saved_fails():
    def forward(problem, result):
        return Forward(result.o, result.lse, {"lse": result.lse.clone(), "inner": result})

    class Subject(Wrapped):
        def backward(self, problem, saved):
            gradients = self.inner.backward(problem, saved.saved["inner"])
            scale = saved.saved["lse"] / result_of(saved).lse
            saved.saved["lse"] *= 0.5
            return dataclasses.replace(gradients, dv=gradients.dv * scale.mean())

    def result_of(saved):
        return saved.saved["inner"]

    found, _ = errors(
        Subject(forward=forward, inner=make()), plan=Plan(checks=("reuse",), questions={"reuse": ("backward",)})
    )

    assert found == {"saved-state", "backward"}


def test_what_a_forward_keeps_is_found_wherever_it_is():
    class Kept:
        def __init__(self):
            self.tables = [torch.zeros(2), {"deep": (torch.ones(2),)}]

    kept = Kept()
    saved = Saved(Forward(torch.zeros(1), None, (kept, 3)))
    unchanged = saved.changed()
    kept.tables[1]["deep"][0][1] = -0.0

    assert (unchanged, saved.changed()) == ("", "saved.0.tables.1.deep.0")


class Replays:
    """Stands for a captured graph: it runs the subject again over the captured tensors, with what `case` says of them."""

    def __init__(self, subject, problem):
        self._subject, self._problem = subject, problem

    def replay(self, problem):
        return dataclasses.replace(execute(self._subject, self._problem), problem=problem)


def on_a_gpu(monkeypatch, subject, case, captured):
    """The question `graph` with `captured` in place of a capture."""
    monkeypatch.setattr(reuse, "captured", captured)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    problem, _ = materialize(case)
    return [(v.status, v.error, v.message) for v in reuse._replayed(subject, execute(subject, problem))]


def test_a_replay_that_reads_its_inputs_and_lengths_passes(monkeypatch):
    assert on_a_gpu(monkeypatch, make(), LENGTHS, Replays) == []


def test_a_replay_with_the_lengths_of_its_capture_fails(monkeypatch):
    def host(p):
        return attention(dataclasses.replace(p, key_lengths=torch.tensor(p.case.mask.key_lengths)))

    found = on_a_gpu(monkeypatch, make(host), LENGTHS, Replays)

    assert {(status, error) for status, error, _ in found} == {(Status.FAIL, "graph")}
    assert "over other inputs" in found[0][2]


@pytest.mark.parametrize(("promised", "status"), [(True, Status.FAIL), (None, Status.PASS)])
def test_a_subject_that_cannot_be_captured_fails_only_where_it_promises_to(monkeypatch, promised, status):
    def captured(subject, problem):
        raise RuntimeError("operation not permitted when stream is capturing")

    subject = make(contract=Contract(deterministic=True, graphs=promised))
    found = on_a_gpu(monkeypatch, subject, PLAIN, captured)

    assert [(verdict, error) for verdict, error, _ in found] == [(status, "graph")]
    assert "not permitted" in found[0][2]


def test_a_replay_is_of_the_captured_tensors_with_poisoned_outputs():
    class Graph:
        def replay(self):
            written.copy_(source * 2)

    source, written, left = torch.ones(2), torch.zeros(2), torch.zeros(2)
    problem, _ = materialize(PLAIN)
    captured = Captured(Graph(), {"o": written, "lse": left})
    source[0] = 5.0
    outputs = captured.replay(problem).outputs

    assert outputs["o"].tolist() == [10.0, 2.0]
    assert outputs["lse"].isnan().all()
