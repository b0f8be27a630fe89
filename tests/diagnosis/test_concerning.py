"""An output that a name leaves as it is has another cause where it is wrong: by its bound, or by the strict prediction alone."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Claim
from flashverify.diagnosis.concerning import about, concerns, left_alone
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.naming import Named
from flashverify.diagnosis.observe import look
from flashverify.numerics import Form
from tests.diagnosis.planted import Plain, planted

CASE = "fv1 seq_q=5 seq_k=30 dim_qk=8 dim_v=8 dtype=fp16 backward=no"
ORDERED = Form(block_n=64, key_order="ascending")


def weighed(round_down):
    """O by weights that are rounded to fp16, to the number below where `round_down`."""

    def output(self, o, z, v, lse):
        p = (z - z.amax(-1, keepdim=True)).exp()
        rounded = (p.half().view(torch.int16) - round_down).view(torch.half).double()
        return rounded @ v / p.sum(-1, keepdim=True)

    return output


def other_sign(round_down):
    return planted(
        output=weighed(round_down),
        lse=lambda self, whole, total: -whole,
        form=lambda self, case: ORDERED,
        supports=dataclasses.replace(Plain.supports, dtypes=("fp16",)),
    )


@pytest.mark.parametrize(
    ("output", "subject", "name"),
    [("lse", planted(lse=lambda self, whole, total: -whole), "lse-sign"), ("o", other_sign(1), "")],
    ids=["the LSE", "O"],
)
def test_a_name_is_given_to_no_output_that_it_leaves_as_it_is(output, subject, name):
    case = parse_case(CASE)
    verdict = next(v for v in judge_case(subject, case, Plan.only("accuracy", case)).failures if v.output == output)
    assert verdict.mode == ("strict" if output == "o" else "end-to-end")

    found = diagnose(subject, case, verdict, seconds=60)

    assert (found.name, found.beside) == (name, ("o",) if name else ())


@pytest.mark.parametrize(("output", "round_down", "told"), [("o", 1, False), ("o", 0, True), ("lse", 1, True)])
def test_an_answer_counts_where_it_has_to_do_with_what_is_wrong(output, round_down, told):
    scene = look(other_sign(round_down), parse_case(CASE))
    answer = Named([Claim(next(each for each in SEMANTICS if each.name == "lse-sign"))])

    assert about(lambda trials, start: answer, scene, output)(None, scene) is (answer if told else None)


@pytest.mark.parametrize(
    ("name", "defect", "beside"),
    [
        ("lse-sign", {"lse": lambda self, whole, total: -whole}, ("o",)),
        ("gradient-without-scale", {"dk_factor": lambda self, problem: 1 / self.scale(problem)}, ("dv",)),
        ("scale-missing", {"scale": lambda self, problem: 1.0}, ()),
        ("maximum-from-zero", {"scale": lambda self, problem: 1.0}, ()),
        ("no-such-name", {"scale": lambda self, problem: 1.0}, ()),
        ("", {"scale": lambda self, problem: 1.0}, ()),
    ],
)
def test_what_a_name_leaves_alone_is_the_other_output_of_a_kernel(name, defect, beside):
    text = CASE.replace("fp16", "fp32").replace(" backward=no", "")
    scenes = [look(planted(**defect), parse_case(text + more)) for more in ("", " causal=top-left")]
    assert all(scene.failures for scene in scenes)

    assert left_alone(scenes, name) == beside


def test_nothing_is_left_alone_where_nothing_fails():
    assert left_alone([look(planted(), parse_case(CASE))], "lse-sign") == ()


@pytest.mark.parametrize(("output", "told"), [("o", False), ("lse", True), ("dq", True)])
def test_a_name_has_to_do_with_what_it_changes_and_with_what_is_computed_from_it(output, told):
    scene = look(planted(lse=lambda self, whole, total: whole * 1.5), parse_case(CASE.replace(" backward=no", "")))
    semantics = next(each for each in SEMANTICS if each.name == "lse-base-2")

    assert concerns(semantics, scene, frozenset({output})) is told


def test_a_name_that_has_nothing_to_say_of_a_run_is_not_held_against_it():
    scene = look(planted(lse=lambda self, whole, total: whole * 1.5), parse_case(CASE))
    semantics = next(each for each in SEMANTICS if each.name == "causal-one-key-more")

    assert concerns(semantics, scene, frozenset({"o"}))
