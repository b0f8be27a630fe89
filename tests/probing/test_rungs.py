"""Which forms the probe tries when, and which of their fields only an author may declare."""

import dataclasses

import pytest

from flashverify.numerics import Form
from flashverify.probing.forms import HARMLESS, loosening, rungs, words_of


@pytest.mark.parametrize(
    "harmless",
    [{"normalise": "lse"}, {"normalise": "lse_weights"}, {"delta_from": "p", "p_from": "forward"}],
)
def test_what_keeps_to_fp32_is_inferred(harmless):
    _, first, *_ = rungs("bf16")

    assert harmless in first
    assert not loosening(harmless)


@pytest.mark.parametrize(
    "loose",
    [
        {"s_dtype": "input"},
        {"pv_dtype": "input"},
        {"dp_dtype": "input"},
        {"o_accum": "bf16"},
        {"k_smoothed": True},
        {"normalise": "before_cast"},
    ],
)
def test_what_rounds_to_16_bits_is_for_its_author_to_declare(loose):
    _, first, second, third, *_ = rungs("bf16")

    assert loose in third
    assert loose not in [*first, *second]
    assert loosening(loose) == loose
    assert words_of(loose) not in ("", *loose)


def test_every_form_that_is_tried_is_one_and_the_harmless_ones_come_first():
    every = [change for rung in rungs("fp32") for change in rung]

    assert all(dataclasses.replace(Form(), **change) for change in every[:HARMLESS])
    assert not any(loosening(change) for change in every[:HARMLESS])
    assert loosening(every[HARMLESS])
