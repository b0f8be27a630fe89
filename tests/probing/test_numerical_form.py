"""The numerical form: the smallest that explains what was seen, and no roundings that only an author may declare."""

import pytest
import torch

from flashverify import subject
from flashverify.probing.answering import Answering
from flashverify.probing.forms import loosening, rungs
from flashverify.probing.questions import FormFit, Load
from flashverify.probing.survey import survey
from tests.probing.attention import attention, inferred, probed


def rounded_sum(p):
    return attention(p, summed=lambda w: w.to(torch.bfloat16).float())


class Listening(Answering):
    """Keeps the questions about forms."""

    def __init__(self, subject):
        super().__init__(subject)
        self.fits = []

    def ask(self, question):
        if isinstance(question, FormFit):
            self.fits.append(question)
        return super().ask(question)


@pytest.fixture(scope="module")
def plain():
    """What is inferred of a kernel that keeps to fp32, and the questions that were asked."""
    answering = Listening(subject(device="cpu")(attention))
    loaded = answering.ask(Load(subject="here:attention", device="cpu"))
    found = survey(answering, loaded, spec="here:attention", device="cpu", seconds=60, topics=(), forms=("bf16",))
    return found, answering.fits


@pytest.mark.slow
def test_the_plainest_form_explains_a_kernel_that_keeps_to_fp32(plain):
    found, _ = plain

    assert [(form.form, form.refuted, form.failed) for form in found.forms] == [("Form()", (), ())]
    assert min(min(form.fitted, form.held_out) for form in found.forms) >= 5
    assert not found.suspects


@pytest.mark.slow
def test_a_backward_of_autograd_does_not_read_the_returned_outputs(plain):
    assert inferred(plain[0], "contract")["reads_outputs"] == "False"


@pytest.mark.slow
def test_cases_that_judge_a_form_are_none_of_those_that_it_is_fitted_on(plain):
    for fit in plain[1]:
        assert fit.fitted
        assert not set(fit.fitted) & set(fit.held_out)


@pytest.mark.slow
@pytest.mark.thorough
def test_what_rounds_more_is_said_and_never_pasted():
    found = probed(rounded_sum, forms=("bf16",))
    (form,) = found.forms

    assert found.exit_code == 1
    assert any("row sum" in suspect.sentence for suspect in found.suspects)
    assert "Form(" not in found.code.split("# ")[0]
    assert form.refuted


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_forms_rise_from_the_plainest_and_what_loosens_comes_last(dtype):
    order = [change for rung in rungs(dtype) for change in rung]
    first = next(n for n, change in enumerate(order) if loosening(change))

    assert order[0] == {}
    assert all(loosening(change) for change in order[first:])
    assert {"row_sum": "rounded"} in order[first:]
