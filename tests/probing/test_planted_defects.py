"""Curated defects are never taken for conventions: each is said to look like a defect, and no code declares it."""

import pytest

from flashverify.interpreter import Sanitizer, faithful
from flashverify.mutants.bank import CURATED
from flashverify.mutants.build import build_mutant
from flashverify.probing.answering import Answering
from flashverify.probing.questions import Load
from flashverify.probing.survey import survey
from flashverify.subjects import load_subject

PLANTED = {
    "lse_in_the_wrong_base": ((), (), "the LSE is in base 2, where lse_base='e'", "lse_base"),
    "row_sum_of_rounded_weights": ((), ("bf16",), "the row sum of P rounded to bf16", "row_sum"),
    "weights_truncated": ((), ("bf16",), "P truncated to bf16", "Form"),
    "accumulator_in_the_input_dtype": ((), ("bf16",), "the accumulator, rounded to bf16", "partial_dtype"),
    "causal_off_by_one": (("causal",), (), "causal", "Form"),
    "wrong_gqa_head": (("heads",), (), "which kv head a query head reads", "gqa="),
}


@pytest.fixture(scope="module")
def interpreted():
    with faithful(Sanitizer):
        yield


def probe(spec, topics, forms):
    answering = Answering(load_subject(spec))
    loaded = answering.ask(Load(subject=spec, device="cpu"))
    return survey(answering, loaded, spec=spec, device="cpu", seconds=60, topics=topics, forms=forms)


# The forms are thorough: test_numerical_form.py has one in plain torch. The conventions and the mask are cheap.
@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] * bool(PLANTED[name][1])) for name in PLANTED],
)
def test_a_curated_defect_looks_like_one(name, interpreted, tmp_path):
    topics, forms, words, field = PLANTED[name]
    mutant = next(mutant for mutant in CURATED if mutant.name == name)
    found = probe(build_mutant(mutant, tmp_path), topics, forms)

    assert found.exit_code == 1
    assert any(words in f"{suspect.what}: {suspect.sentence}" for suspect in found.suspects)
    assert field not in found.code.split("# ")[0]


@pytest.mark.slow
@pytest.mark.thorough
def test_nothing_of_the_kernels_without_a_defect_looks_like_one(interpreted):
    found = probe("bundled", ("causal", "heads"), ("bf16",))

    assert found.suspects == ()
    assert [form.form for form in found.forms] == ["Form()"]
