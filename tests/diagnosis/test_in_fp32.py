"""Which run in fp32 stands beside a failure in 16 bits."""

from types import SimpleNamespace

import pytest

from flashverify.case.case import Case, Values
from flashverify.diagnosis.starting import clearest, in_fp32


class Runs:
    """A subject that is wrong in fp32 with the values of some seeds."""

    subject = SimpleNamespace(supports=SimpleNamespace(refusal=lambda case: None))

    def __init__(self, *wrong):
        self.wrong, self.asked = wrong, []

    def scene(self, case):
        self.asked.append(case)
        return SimpleNamespace(case=case, failures=case.values.seed in self.wrong)


def failing(case):
    return SimpleNamespace(case=case)


@pytest.mark.parametrize(("wrong", "seed"), [((0, 81), 0), ((82,), 82), ((62,), 62)])
def test_a_case_that_fails_in_fp32_is_taken_whatever_values_show_it(wrong, seed):
    runs = Runs(*wrong)
    found = in_fp32(runs, failing(Case(dtype="fp16")))

    assert (found.failures, found.case.values.seed, found.case.dtype) == (True, seed, "fp32")


def test_a_case_that_is_right_in_fp32_was_right_with_other_values_too():
    runs = Runs()
    found = in_fp32(runs, failing(Case(dtype="bf16")))

    assert not found.failures
    assert found.case == runs.asked[0] == Case(dtype="fp32")
    assert len({case.values.seed for case in runs.asked}) == 5
    assert any(case.scale is not None for case in runs.asked)


def test_a_case_in_fp32_has_no_other_beside_it():
    runs = Runs(0)
    assert in_fp32(runs, failing(Case(dtype="fp32"))) is None
    assert runs.asked == []


class Scenes:
    """Runs by the regime of their values: the outputs that are wrong."""

    subject = Runs.subject

    def __init__(self, **wrong):
        self.wrong = wrong

    def scene(self, case):
        return SimpleNamespace(case=case, failures=dict.fromkeys(self.wrong[case.values.regime]))

    def of(self, cases, *, share):
        return map(self.scene, cases)


@pytest.mark.parametrize(
    ("small", "usual", "regime"),
    [
        (("dv",), ("dk", "dv"), "normal"),
        (("o",), ("o", "lse"), "normal"),
        (("dv",), ("o", "dv"), "zeros"),  # what is wrong in the forward is another mistake
        (("dk", "dv"), ("dv",), "zeros"),
    ],
)
def test_a_run_with_usual_values_stands_for_another_if_it_fails_in_the_same_outputs_and_no_earlier_ones(
    small, usual, regime
):
    runs = Scenes(zeros=small, normal=usual)
    start, remark = clearest(runs, runs.scene(Case(dtype="fp32", values=Values(regime="zeros"))))

    assert (start.case.values.regime, remark) == (regime, "")
