"""What a subject promises to return: every output that the case calls for, in its dtype, and a delta that holds what is declared."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, judge_case
from flashverify.checks.accuracy import check_accuracy, shape_failures
from flashverify.checks.confirm import confirm
from flashverify.checks.passes.execution import execute
from flashverify.checks.registry import failure_title
from flashverify.errors import UsageError
from flashverify.judge.verdict import Status
from flashverify.mutants import build_mutant
from flashverify.mutants.mutant import Mutant
from flashverify.numerics import Form
from flashverify.subjects import Contract, Gradients, has_gpu
from tests.diagnosis.planted import Plain

ALL = frozenset({"dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"})
LEARNED = parse_case(
    "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32 bias=full sink=yes relative_bias=8,20,both klen=0,9 dlse=yes seed=4"
)
BARE = parse_case("fv1 seq_q=5 seq_k=9 dtype=bf16 seed=4")
FORWARD = parse_case("fv1 seq_q=5 seq_k=9 dtype=bf16 sink=yes bias=full backward=no seed=4")


class Returning(Plain):
    """Right, with every gradient; delta is stored as a kernel stores it, minus dLSE. `change` alters one output."""

    contract = Contract(gradients=ALL)

    def __init__(self, name="", change=None, contract=None, stored="minus_dlse"):
        self.altered, self.change, self.stored = name, change, stored
        self.contract = contract or self.contract

    def form(self, case):
        return Form(block_n=16, stored_delta=self.stored)

    def _changed(self, result):
        if not hasattr(result, self.altered):
            return result
        return dataclasses.replace(result, **{self.altered: self.change(getattr(result, self.altered))})

    def forward(self, problem):
        self.problem = problem
        return self._changed(super().forward(problem))

    def backward(self, problem, forward):
        found = super().backward(problem, forward)
        if problem.dlse is not None:
            seen = torch.isfinite(forward.lse) if forward.lse is not None else True
            found = dataclasses.replace(found, delta=torch.where(seen, found.delta - problem.dlse, found.delta))
        return self._changed(found)


def failures(subject, case=LEARNED, plan=None):
    result = judge_case(subject, case, plan or Plan.only("accuracy", case))
    assert not [v for v in result.verdicts if v.status is Status.ERROR]
    return {(v.check, v.error, v.output) for v in result.failures}


def asked(subject, case):
    return {verdict.output: verdict.error for verdict in shape_failures(execute(subject, materialize(case, "cpu")[0]))}


@pytest.mark.parametrize("case", [LEARNED, BARE, FORWARD], ids=["learned", "bare", "forward"])
def test_a_subject_that_returns_what_it_promises_passes(case):
    assert failures(Returning(), case) == set()
    judged = {stats.output for stats in judge_case(Returning(), case, Plan.only("accuracy", case)).stats}
    assert ({"delta", "dq", "dk", "dv"} <= judged) is case.grad.backward
    assert ({"dbias", "dsink", "drelative_bias"} <= judged) is (case is LEARNED)


@pytest.mark.parametrize("name", [*sorted(ALL), "lse"])
def test_a_promised_output_that_is_missing_fails(name):
    class WithoutForward(Returning):
        def backward(self, problem, forward):  # its own LSE may be what is missing
            return super().backward(problem, Returning().forward(problem))

    subject = WithoutForward(name, lambda _: None)
    assert failures(subject) == {("accuracy", "missing", name)}
    assert failure_title("accuracy", "missing", name) == f"{name} is not returned"


def test_what_is_not_promised_or_not_called_for_may_be_missing():
    def nothing(_):
        return None

    unpromised = Contract(gradients=ALL - {"dsink", "delta"})
    assert failures(Returning("dsink", nothing, unpromised)) == set()
    assert failures(Returning("delta", nothing, unpromised)) == set()
    assert failures(Returning("dbias", nothing), BARE) == set()
    assert failures(Returning("dbias", nothing), FORWARD) == set()
    assert failures(Plain(), BARE) == set()


def test_an_unknown_promise_is_refused():
    with pytest.raises(UsageError, match=r"gradients=.*dp.*dbias, delta, dk, dq, drelative_bias, dsink, dv"):
        Contract(gradients=frozenset({"dq", "dp"}))
    with pytest.raises(UsageError, match="a frozenset of"):
        Contract(gradients={"dq"})


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["lse", "delta", "dsink", "drelative_bias", "dq", "dbias", "o"])
def test_an_output_of_another_dtype_fails(name, dtype):
    def other(tensor):
        return tensor.to(dtype)

    assert asked(Returning(), LEARNED) == {}
    assert asked(Returning(name, other), LEARNED) == {name: "shape"}


def test_statistics_are_fp32_where_the_inputs_are_narrower():
    assert asked(Returning("lse", lambda x: x.to(torch.bfloat16)), BARE) == {"lse": "shape"}
    assert asked(Returning("lse", lambda x: x.float()), BARE) == {}


def test_a_gradient_of_nothing_fails():
    assert asked(Returning("dsink", lambda _: torch.zeros(1)), BARE) == {"dsink": "shape"}


class Swapped(Returning):
    """DLSE folded into delta with the wrong sign."""

    def backward(self, problem, forward):
        found = super().backward(problem, forward)
        seen = torch.isfinite(forward.lse)
        return dataclasses.replace(found, delta=torch.where(seen, found.delta + 2 * problem.dlse, found.delta))


class Unmasked(Returning):
    """Rows that see no key hold -dLSE in delta instead of 0."""

    def backward(self, problem, forward):
        found = super().backward(problem, forward)
        return dataclasses.replace(found, delta=torch.where(torch.isfinite(forward.lse), found.delta, -problem.dlse))


def test_delta_holds_what_is_declared():
    assert failures(Returning()) == set()
    assert failures(Returning(stored="plain")) == {("accuracy", "bound", "delta")}
    assert failures(Swapped()) == {("accuracy", "bound", "delta")}
    assert failures(Unmasked()) == {("accuracy", "empty-row", "delta")}


@pytest.mark.parametrize(
    "subject", [pytest.param(Swapped(), id="swapped"), pytest.param(Unmasked(), id="unmasked", marks=pytest.mark.slow)]
)
def test_arithmetic_of_many_digits_confirms_a_wrong_delta_that_holds_dlse(subject):
    (verdict, *_) = (v for v in judge_case(subject, LEARNED, Plan.only("accuracy", LEARNED)).failures)
    assert confirm(subject, LEARNED, verdict).agrees
    assert confirm(Returning(), LEARNED, verdict).agrees is False


def test_a_dlse_that_is_not_finite_taints_a_delta_that_holds_it():
    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32 dlse=yes seed=4")
    problem, _ = materialize(case, "cpu")
    problem.dlse[0, 0, 2] = float("nan")

    class Poisoned(Returning):
        def backward(self, problem, forward):
            found = super().backward(problem, forward)
            return dataclasses.replace(found, delta=torch.where(torch.isnan(problem.dlse), problem.dlse, found.delta))

    def failing(subject):
        comparisons = check_accuracy(subject, execute(subject, problem)).comparisons
        return {verdict.output for x in comparisons for verdict in x.verdicts}

    assert failing(Poisoned()) == set()
    assert failing(Poisoned(stored="plain")) == {"delta"}


SMALL = "fv1 seq_q=4 seq_k=4 dim_qk=8 dim_v=8"
PLANTED = (
    (
        f"{SMALL} dtype=fp32 causal=top-left edits=v:0,0,3,0:1e30;do:0,0,0,0:1e20",
        ("device/softmax.py", "    if MASKED:\n        ds = tl.where(see, ds, 0.0)\n    return ds", "    return ds"),
        {("nonfinite", "nan", "dq"), ("nonfinite", "nan", "dk")},
    ),
    (
        f"{SMALL} klen=0 dlse=yes",
        ("device/delta.py", '    delta = tl.where(lse2 == float("-inf"), 0.0, delta)\n', ""),
        {("accuracy", "empty-row", "delta")},
    ),
    (
        f"{SMALL} sink=yes",
        ("launch.py", "None if sink is None or not needs[4] else sink_gradient", "None and sink_gradient"),
        {("accuracy", "missing", "dsink")},
    ),
    (
        f"{SMALL} sink=yes",
        ("reductions.py", ".sum((0, 2)).to(torch.float32)", ".sum((0, 2))"),
        {("accuracy", "shape", "dsink")},
    ),
)


@pytest.fixture(scope="module")
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each mutant would be compiled anew")
    with toolkit.open("cpu", plain=False):
        yield


@pytest.mark.parametrize(
    ("text", "change", "expected"), PLANTED, ids=["ds-mask", "delta-mask", "no-dsink", "wide-dsink"]
)
def test_a_defect_of_the_bundled_kernels_is_seen_and_the_clean_ones_pass(
    interpreter, request, tmp_path, monkeypatch, text, change, expected
):
    monkeypatch.syspath_prepend(str(tmp_path))
    case, (file, before, after) = parse_case(text), change
    name = f"outputs_{request.node.callspec.id.replace('-', '_')}"
    mutant = Mutant(
        name=name, file=file, before=before, after=after, outputs=(), modelled_on="a promise that is not kept"
    )
    subject = toolkit.load(build_mutant(mutant, tmp_path))

    def found(subject):
        verdicts = [
            v for check in ("accuracy", "nonfinite") for v in toolkit.judge(subject, case, f"only:{check}").failures
        ]
        return {(v.check, v.error, v.output) for v in verdicts}

    assert found(toolkit.load("bundled")) == set()
    assert found(subject) == expected


@pytest.mark.parametrize("check", ["relations", "counting"])
def test_a_backward_that_promises_nothing_is_no_reason_for_an_exception(check):
    class Silent(Returning):
        def backward(self, problem, forward):
            return Gradients(dq=None, dk=None, dv=None)

    subject = Silent(contract=Contract(gradients=frozenset()))
    for case in (BARE, LEARNED):
        result = judge_case(subject, case, Plan.only(check, case))
        assert [v.message for v in result.verdicts if v.status in (Status.ERROR, Status.FAIL)] == []
