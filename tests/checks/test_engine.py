"""The checks on a small correct attention and on broken ones: every check has a defect that turns it red."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import CHECKS, Plan, judge_case
from flashverify.judge.verdict import Status, from_hex
from flashverify.launching.compilations import NotCompiled
from flashverify.subjects import Contract, Gradients
from tests.checks.naive import attention, make

CASE = parse_case("fv1 batch=2 heads_q=2 heads_kv=1 seq_q=5 seq_k=9 dtype=fp32 causal=bottom-right klen=4,9 seed=3")
PLAIN = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=6 dtype=fp32 seed=1")


def failures(subject, case=CASE, plan=None):
    result = judge_case(subject, case, plan or Plan.run())
    return {(v.check, v.error, v.output) for v in result.failures}


class Wrapped:
    """A subject whose results are changed by the two hooks."""

    def __init__(self, forward=None, backward=None, inner=None):
        self.inner = inner or make()
        self.name, self.supports, self.contract = "wrapped", self.inner.supports, self.inner.contract
        self._forward, self._backward = forward, backward

    def form(self, case):
        return self.inner.form(case)

    def device(self):
        return "cpu"

    def evidence(self):
        return "cpu"

    def forward(self, problem):
        result = self.inner.forward(problem)
        return self._forward(problem, result) if self._forward else result

    def backward(self, problem, forward):
        result = self.inner.backward(problem, forward)
        return self._backward(problem, result) if self._backward else result


@pytest.mark.parametrize("case", [CASE, PLAIN], ids=["padded", "plain"])
def test_a_correct_attention_passes_every_check(case):
    result = judge_case(make(), case, Plan.run())

    assert result.failures == ()
    assert {v.check for v in result.verdicts} >= set(CHECKS) - {
        "padding",
        "sanitizer",
        "addresses",
        "config",
        "statistics",
    }
    assert {(s.output, s.mode) for s in result.stats} == {
        ("o", "end-to-end"),
        ("lse", "end-to-end"),
        *((name, mode) for name in ("dq", "dk", "dv") for mode in ("end-to-end", "conditional")),
    }
    assert 0 < max(from_hex(s.worst) for s in result.stats) < 1
    assert result.coverage


def test_sizes_of_zero_and_one_are_judged():
    for text in ("fv1 dtype=fp32 seq_q=0", "fv1 dtype=fp32 seq_k=0", "fv1 dtype=fp32 batch=0", "fv1 dtype=fp32"):
        result = judge_case(make(), parse_case(text), Plan.run())
        assert result.failures == (), text


def test_an_unsupported_case_is_one_verdict_with_its_reason():
    result = judge_case(make(), parse_case("fv1 dtype=bf16"), Plan.run())

    assert [v.status for v in result.verdicts] == [Status.UNSUPPORTED]
    assert "bf16" in result.unsupported


def test_a_shifted_diagonal_fails_accuracy_in_every_output():
    found = failures(make(lambda p: attention(p, shift=1)))

    assert {output for check, error, output in found if (check, error) == ("accuracy", "bound")} >= {
        "o",
        "lse",
        "dq",
        "dk",
        "dv",
    }


def test_logits_off_by_a_hundred_thousandth_fail():
    assert ("accuracy", "bound", "lse") in failures(make(lambda p: attention(p, extra=1e-4)), PLAIN)


def test_lse_of_another_base_fails():
    assert ("accuracy", "bound", "lse") in failures(
        make(lambda p: (attention(p)[0], attention(p)[1] / math.log(2))), PLAIN
    )


def test_a_declared_base_is_judged_in_that_base():
    in_base_2 = make(lambda p: (attention(p)[0], attention(p)[1] / math.log(2)), contract=Contract(lse_base="2"))

    assert failures(in_base_2) == set()


def test_a_wrong_empty_row_fails():
    def forward(problem, result):
        return dataclasses.replace(result, lse=result.lse.masked_fill(result.lse == -math.inf, math.inf))

    assert ("accuracy", "empty-row", "lse") in failures(Wrapped(forward=forward))


def test_nan_fails_nonfinite():
    def forward(problem, result):
        result.o[0, 1, 4, 2] = math.nan
        return result

    assert ("nonfinite", "nan", "o") in failures(Wrapped(forward=forward))


def test_a_gradient_without_scale_fails():
    def backward(problem, g):
        return Gradients(g.dq, g.dk / problem.scale, g.dv)

    found = failures(Wrapped(backward=backward), PLAIN)

    assert {failure for failure in found if failure[0] != "counting"} == {("accuracy", "bound", "dk")}


def test_keys_beyond_the_length_fail_padding():
    def leaking(p):
        o, lse = attention(p)
        return o + 0.0 * p.v[:, :1, -1:, :], lse  # 0 * NaN

    assert ("padding", "padding", "o") in failures(make(leaking))


def noisy(p):
    o, lse = attention(p)
    return o * (1 + 2.0**-22 * float(torch.randint(3, ()))), lse


@pytest.mark.slow
def test_padding_of_a_nondeterministic_subject_fails_only_where_it_is_systematic():
    plan = Plan(checks=("padding",), questions={"padding": ("nan", "max")})
    unknown = Contract()

    assert failures(make(noisy, contract=unknown), plan=plan) == set()

    def leaking(p):
        o, lse = noisy(p)
        return o + (p.v[:, :1, -1:, :] > 1e30) * o, lse

    assert ("padding", "padding", "o") in failures(make(leaking, contract=unknown), plan=plan)


def test_an_exception_is_a_failure_with_its_type():
    def broken(p):
        raise ZeroDivisionError("no")

    result = judge_case(make(broken), PLAIN, Plan.run())

    assert [(v.check, v.output, v.message) for v in result.failures] == [
        ("exception", "ZeroDivisionError", "ZeroDivisionError: no")
    ]


def test_an_exception_of_a_later_pass_is_a_failure_too_and_shows_the_line():
    calls = []

    def broken(p):
        calls.append(1)
        if len(calls) > 1:
            raise ZeroDivisionError("no")
        return attention(p)

    (verdict,) = judge_case(make(broken), PLAIN, Plan(checks=("determinism",))).verdicts

    assert (verdict.check, verdict.output) == ("exception", "ZeroDivisionError")
    assert 'raise ZeroDivisionError("no")' in verdict.traceback


def test_a_wrong_shape_is_a_failure():
    assert ("accuracy", "shape", "o") in failures(make(lambda p: (attention(p)[0][..., :-1], attention(p)[1])), PLAIN)


def test_a_nan_inside_the_lengths_taints_its_group_and_only_it():
    text = "fv1 heads_q=2 heads_kv=2 seq_q=3 seq_k=3 dtype=fp32 edits=q:0,0,1,0:nan"

    assert failures(make(), parse_case(text)) == set()

    def spreading(p):
        o, lse = attention(p)
        return o + 0 * o.sum(), lse

    assert ("nonfinite", "nan", "o") in failures(make(spreading), parse_case(text))


def test_a_swallowed_nan_is_a_warning():
    def swallow(p):
        q = torch.nan_to_num(p.q)
        return attention(dataclasses.replace(p, q=q))

    case = parse_case("fv1 seq_q=3 seq_k=3 dtype=fp32 edits=q:0,0,1,0:nan")

    assert "a non-finite input left every output finite" in judge_case(make(swallow), case, Plan.run()).warnings


def test_unknown_names_in_a_plan_are_refused():
    with pytest.raises(ValueError, match="'speed' is not accepted"):
        Plan(checks=("speed",))


def test_a_run_asks_every_question_of_small_cases_and_each_of_some_larger_ones():
    small, large = (
        parse_case("fv1 dtype=fp32"),
        [parse_case(f"fv1 heads_q=2 heads_kv=2 seq_q=64 seq_k=64 dtype=fp32 seed={seed}") for seed in range(12)],
    )
    plan = Plan.run()

    asked = plan.for_case(small)
    assert {name for name in asked.checks if asked.asked(name) != plan.asked(name)} == {"addresses"}
    parts = [plan.for_case(case) for case in large]
    shared = ("relations", "reuse")
    for check in shared:
        assert {name for part in parts for name in part.asked(check)} == set(plan.asked(check))
    third = math.ceil(sum(len(plan.asked(check)) for check in shared) / 3)
    assert max(sum(len(part.asked(check)) for check in shared) for part in parts) <= third
    assert Plan.only("relations", large[0]).for_case(large[0]).asked("relations") == plan.asked("relations")


def test_a_check_that_examined_nothing_gives_no_pass():
    alone = parse_case("fv1 seq_q=6 seq_k=6 dtype=fp32 seed=1")
    plan = Plan(
        checks=("accuracy", "determinism", "padding"), questions={"determinism": ("solo-sequence", "solo-head")}
    )
    assert {v.check for v in judge_case(make(), alone, plan).verdicts} == {"accuracy"}

    void = parse_case("fv1 seq_q=4 seq_k=4 dtype=fp32 edits=q:0,0,0,0:nan")
    result = judge_case(make(), void, Plan(checks=("accuracy", "nonfinite")))
    exempt = sum(s.exempt for s in result.stats)
    assert exempt == sum(s.elements for s in result.stats) > 0
    assert {v.status for v in result.verdicts} == {Status.EXEMPT}
    assert not result.coverage


def only_compiled(calls):
    """A subject whose kernels are compiled for so many calls."""
    left = iter(range(calls))

    def refuse(_, result):
        if next(left, None) is None:
            raise NotCompiled("kernel")
        return result

    return Wrapped(forward=refuse)


def test_a_check_whose_kernel_is_not_compiled_is_left_out_and_the_others_are_asked():
    result = judge_case(only_compiled(1), PLAIN, Plan(checks=("accuracy", "determinism", "relations", "memory")))

    assert result.unasked == ("determinism", "relations")
    assert {(v.check, v.status) for v in result.verdicts} == {("accuracy", Status.PASS), ("memory", Status.PASS)}


def test_a_case_whose_own_kernel_is_not_compiled_is_not_judged():
    with pytest.raises(NotCompiled):
        judge_case(only_compiled(0), PLAIN, Plan.run())
