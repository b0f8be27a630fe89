"""Relations of the bundled kernels that a small attention cannot have: a bias that several heads share, gradients not asked for."""

import dataclasses

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.mutants import Mutant, build_mutant
from flashverify.subjects import load_subject

pytestmark = pytest.mark.usefixtures("interpreter")

SHARED = parse_case(
    "fv1 heads_q=6 heads_kv=2 seq_q=15 seq_k=35 dim_qk=64 dim_v=64 dtype=fp32 precision=tf32 window=13,35 softcap=30 "
    "bias=shared regime=delta-cancels seed=111 layout=bshd gap=1 offset=4 padding=max dlse=yes"
)
PLAIN = parse_case("fv1 heads_q=6 heads_kv=2 seq_q=15 seq_k=35 dim_qk=64 dim_v=64 dtype=fp32 bias=shared seed=1")


class Grown:
    """The bundled kernels, whose gradient of a bias is off once there are more than 35 keys."""

    def __init__(self, factor):
        self.inner, self.factor = load_subject("bundled"), factor
        for name in ("name", "supports", "contract", "form", "device", "evidence", "forward"):
            setattr(self, name, getattr(self.inner, name))

    def backward(self, problem, forward):
        found = self.inner.backward(problem, forward)
        factor = self.factor if problem.case.seq_k > 35 else 1.0
        return dataclasses.replace(found, dbias=found.dbias * factor)


def broken(case, factor):
    result = judge_case(Grown(factor), case, Plan(checks=("relations",), questions={"relations": ("appended-keys",)}))
    assert result.verdicts
    return {(v.error, v.output) for v in result.failures}


def test_a_shared_bias_has_a_gradient_that_appended_keys_leave_within_bounds():
    assert broken(SHARED, 1.0) == set()
    assert broken(PLAIN, 1.0) == set()


def test_a_gradient_of_a_shared_bias_that_depends_on_appended_keys_is_found():
    assert broken(PLAIN, 1.25) == {("bound", "dbias")}  # of the problem with more keys, which is wrong by itself


@pytest.mark.parametrize(
    ("before", "after", "output"),
    [
        ("    if needs[1] or needs[2]:", "    if needs[2]:", "dk"),
        ("        dq if needs[0] else None,", "        dq,", "dq"),
        (
            "    if (bias is not None and needs[3]) or",
            "    if (bias is not None and needs[3] and needs[0]) or",
            "dbias",
        ),
    ],
)
def test_gradients_that_depend_on_what_else_is_asked_for_are_found(before, after, output, tmp_path):
    plan = Plan(checks=("relations",), questions={"relations": ("alone",)})
    mutant = Mutant(
        name=f"only_{output}", file="launch.py", before=before, after=after, outputs=(), modelled_on="a wrong guard"
    )

    assert judge_case(load_subject("bundled"), PLAIN, plan).failures == ()
    found = judge_case(load_subject(build_mutant(mutant, tmp_path)), PLAIN, plan).failures
    assert {(v.error, v.output) for v in found} == {("alone", output)}
