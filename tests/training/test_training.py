"""A training sees nothing in a right subject, and a planted defect by the judgement that is meant to see it."""

import math

import pytest

from flashverify import Contract, subject
from flashverify.adapters.torch_cpu import TORCH_CPU
from flashverify.errors import NoVerdictError, UsageError
from flashverify.subjects import load_subject
from flashverify.training.course import train
from flashverify.training.page import page
from flashverify.training.settings import Settings
from tests.training.planted import DK, RIGHT, SUPPORTS, planted


def trained(subject, *, steps=2, stopped=lambda: False, **options):
    settings = {"device": "cpu", "minutes": None, "length": 32, "heads": 1, "unrolled": 2} | options
    return train(subject, Settings(subject=subject.name, steps=steps, **settings), told=lambda _: None, stopped=stopped)


def seen(record):
    return {(finding.kind, finding.what) for finding in record.findings}


@pytest.mark.parametrize(("subject", "dtype"), [(RIGHT, "fp32"), (TORCH_CPU, "bf16"), (TORCH_CPU, "fp16")])
def test_a_right_subject_trains_as_float64_does(subject, dtype):
    record = trained(subject, dtype=dtype)
    precise = dtype == "fp32"

    assert seen(record) == set()
    assert record.exit_code == 0
    assert len(record.loss_band) == 2
    for step in record.steps:
        assert abs(step.loss - step.same_weights) <= step.same_band < (1e-3 if precise else 0.5)
        assert abs(step.loss - step.float64) < (1e-6 if precise else 1e-2)
        assert all(0 < one.ratio < 1 and one.error <= one.bound for one in step.outputs)
        assert all(one.low < 0 < one.high for one in step.outputs)
        assert {one.weight for one in step.gradients} == {"wq0", "wk0", "wv0", "wq1", "wk1", "wv1"}
        assert all(one.norm == pytest.approx(one.exact, rel=1e-5 if precise else 3e-2) for one in step.gradients)


def test_a_thousandth_in_dk_is_seen_in_bf16_by_its_direction_alone():
    record = trained(DK, steps=6, layers=1)
    last = {one.output: one for one in record.steps[-1].outputs}

    assert seen(record) == {("systematic", "dk")}
    assert 0 < last["dk"].low < 1e-3 < last["dk"].high < 3e-3
    assert "dk of layer 0 is too large by a common fraction between" in page(record)
    assert record.exit_code == 1


def test_a_thousandth_in_dk_is_seen_in_fp32_in_elements_and_in_the_gradient_of_its_weight():
    record = trained(DK, steps=1, dtype="fp32", layers=1)
    gradients = {one.weight: one for one in record.steps[0].gradients}

    assert seen(record) == {("accuracy", "dk"), ("systematic", "dk"), ("gradient", "wk0")}
    assert gradients["wk0"].off / gradients["wk0"].exact == pytest.approx(1e-3, rel=0.01)


def test_another_dropout_mask_in_the_backward_is_seen_where_the_loss_shows_nothing():
    record = trained(planted(mask_shift=1), steps=1, dropout=0.2)

    assert seen(trained(RIGHT, steps=1, dropout=0.2)) == set()
    assert {("accuracy", name) for name in ("dq", "dk", "dv")} <= seen(record)
    assert not {"o", "lse"} & {what for _, what in seen(record)}
    assert {finding.layer for finding in record.findings} == {0, 1}
    assert abs(record.steps[0].loss - record.steps[0].float64) < 1e-3


def test_each_layer_of_each_step_drops_other_weights_and_the_same_in_a_second_training():
    first, second = [], []
    trained(planted(calls=first), dropout=0.2, unrolled=0)
    trained(planted(calls=second), steps=1, dropout=0.2, unrolled=0)

    assert len({p.dropout_seed for p in first}) == len(first) == 4
    assert [p.dropout_seed for p in first[:2]] == [p.dropout_seed for p in second]


def test_a_scale_off_by_a_hundredth_is_seen_in_the_first_step():
    found = seen(trained(planted(scale=1.01), steps=1, layers=1))

    assert {("accuracy", "o"), ("accuracy", "lse")} <= found


def test_a_subject_that_raises_later_is_a_finding_and_at_once_no_verdict():
    record = trained(planted(raises_at=2), steps=3, layers=2)

    assert seen(record) == {("exception", "ValueError")}
    assert len(record.steps) == 1
    assert "step 1 raised ValueError: no more" in page(record)
    with pytest.raises(NoVerdictError, match="planted raised ValueError: no more"):
        trained(planted(raises_at=0))


def test_an_output_of_another_shape_is_no_verdict():
    @subject(supports=SUPPORTS, contract=Contract(lse_base=None), device="cpu")
    def short(p):
        return p.v[..., :8]

    with pytest.raises(NoVerdictError, match=r"short: o is of shape \[2, 1, 32, 8\], expected \[2, 1, 32, 16\]"):
        trained(short)


def test_an_interrupted_training_says_what_is_known():
    answers = iter([False, False, True])
    record = trained(RIGHT, steps=9, layers=1, stopped=lambda: next(answers))

    assert record.interrupted
    assert len(record.steps) == 2
    assert f"2 steps in {record.seconds:.0f} s, interrupted" in page(record)


def test_nothing_judged_is_no_verdict():
    record = trained(RIGHT, steps=9, stopped=lambda: True)

    assert record.exit_code == 3
    assert "no step was judged" in page(record)


def test_a_subject_without_a_backward_and_one_that_does_not_take_the_layers_are_refused():
    with pytest.raises(UsageError, match="'bundled-decode' is not accepted: it has no backward, and a training needs"):
        trained(load_subject("bundled-decode"))
    with pytest.raises(UsageError, match="'torch-cpu' is not accepted: it does not take the layers of the model: drop"):
        trained(TORCH_CPU, dropout=0.5)


def test_time_ends_a_training_after_its_first_step():
    record = trained(RIGHT, steps=None, minutes=1e-9, layers=1)

    assert len(record.steps) == 1
    assert math.isfinite(record.steps[0].loss)
