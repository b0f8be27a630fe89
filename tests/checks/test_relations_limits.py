"""Relations that hold without any oracle: the hull of V, the range of the LSE, sums of dS, and rows beyond the oracle."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.passes import base_pass
from flashverify.checks.relations.oracle_free import sampled_rows
from flashverify.judge.verdict import Status
from flashverify.subjects import Contract, Gradients
from tests.checks.naive import SUPPORTS, attention, make
from tests.checks.test_engine import Wrapped
from tests.checks.test_relations import ROWS, broken, rounded, shifted, subject


def test_o_outside_the_hull_of_v_is_seen():
    def larger(p):
        o, lse = rounded(p)
        return (o.float() * 1.02).to(o.dtype), lse

    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dtype=bf16 regime=v-constant seed=1")

    assert broken(subject(larger), case, ("hull",)) == {("hull", "o")}
    assert broken(subject(), case, ("hull",)) == set()


@pytest.mark.parametrize("change", [lambda lse: lse - 3.0, lambda lse: lse + 3.0], ids=["below", "above"])
def test_an_lse_outside_its_range_is_seen(change):
    assert broken(subject(lambda p: (rounded(p)[0], change(rounded(p)[1]))), relations=("lse-range",)) == {
        ("lse-range", "lse")
    }


def test_a_delta_that_is_dropped_leaves_a_row_sum_of_ds():
    def backward(problem, g):
        if bool((problem.k[..., -1] != 1).any()):  # right but for the channels that the relation appends
            return g
        row = (problem.do.float() * attention(problem)[0]).sum(-1, keepdim=True)  # delta
        k = problem.k.repeat_interleave(problem.case.heads_q // problem.case.heads_kv, 1)
        w = torch.softmax(problem.q @ k.mT * problem.scale, -1)
        return Gradients(g.dq + problem.scale * row * (w @ k), g.dk, g.dv)

    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dtype=fp32 seed=1")

    assert broken(Wrapped(backward=backward), case, ("ds-sum",)) == {("ds-sum", "dq")}
    assert (
        broken(make(), dataclasses.replace(case, grad=dataclasses.replace(case.grad, backward=True)), ("ds-sum",))
        == set()
    )


def test_a_row_sum_of_ds_is_the_incoming_gradient_of_the_lse():
    supports = dataclasses.replace(SUPPORTS, dlse=True)
    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dtype=fp32 seed=1 dlse=yes")

    assert broken(make(supports=supports), case, ("ds-sum",)) == set()


def test_beyond_the_oracle_rows_that_it_does_not_judge_keep_to_relations(monkeypatch):
    monkeypatch.setattr(base_pass, "ORACLE_LIMIT", 1000)
    monkeypatch.setattr("flashverify.checks.relations.oracle_free.ROWS_WORK", 8)
    monkeypatch.setattr("flashverify.checks.sampled.judging.WHOLE_LIMIT", 0)
    monkeypatch.setattr("flashverify.checks.sampled.judging.judged_rows", lambda *_: torch.tensor([0]))
    wrong = judge_case(subject(lambda p: (rounded(p)[0], shifted(rounded(p)[1]))), ROWS, Plan.run())

    assert {(v.check, v.error, v.output) for v in wrong.failures} >= {("relations", "lse-range", "lse")}
    assert wrong.sampled.rows == 1


def test_sampled_rows_have_the_limits_of_the_whole():
    from flashverify.case.memory.materialize import materialize
    from flashverify.checks.relations.hulls import hull, lse_range
    from flashverify.numerics import Form
    from flashverify.truth import inputs_of, of_rows

    case = parse_case("fv1 batch=2 heads_q=4 heads_kv=2 seq_q=50 seq_k=40 causal=top-left window=9,3 seed=1")
    problem, _ = materialize(case)
    inputs, rows = inputs_of(problem)[0], sampled_rows(problem, 1)

    assert rows.tolist()[0] == 0
    assert rows.tolist()[-1] == 49
    assert 16 <= len(rows) <= 18
    for limits in (hull, lse_range):
        whole = limits(inputs, case.dtype, Form())
        part = limits(of_rows(inputs, rows), case.dtype, Form())
        for a, b in zip(whole, part, strict=True):
            torch.testing.assert_close(a.index_select(2, rows), b, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_what_lies_behind_packed_sequences_does_not_disturb_the_ranges():
    from tests.checks.test_memory import SLACK, Packed

    case = dataclasses.replace(SLACK, grad=dataclasses.replace(SLACK.grad, backward=True))

    class WithGradients(Packed):
        def backward(self, p, forward):
            return Gradients(*(torch.zeros_like(x) for x in (p.q, p.k, p.v)))

    result = judge_case(
        WithGradients(False, Contract(deterministic=True)),
        case,
        Plan(checks=("relations",), questions={"relations": ("double-v", "double-do")}),
    )

    assert [(v.check, v.status) for v in result.verdicts] == [("relations", Status.PASS)]
