"""The kernels under flashverify."""

import pytest


@pytest.mark.flashverify("kernels.subjects:right", cases=80)
def test_right():
    """Four groups of 20 drawn cases: xdist spreads them."""


@pytest.mark.flashverify("kernels.subjects:wrong", cases=40)
def test_wrong():
    """Fails: the card says why."""


@pytest.mark.flashverify(
    "kernels.subjects:right",
    cases=[
        "fv1 seq_q=17 seq_k=33 dtype=fp32 causal=top-left backward=no",
        "fv1 seq_q=40 seq_k=40 regime=ties backward=no",
    ],
)
def test_cases_that_failed_once():
    """One test per case of a list."""


def test_without_flashverify():
    assert 1 + 1 == 2
