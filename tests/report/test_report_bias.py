"""The mean signed ratio: reported with an interval that holds at every length, compared between runs."""

import random

import pytest

from flashverify.judge.verdict import to_hex
from flashverify.report.aggregate import Aggregate
from flashverify.report.bias import ALPHA, Bias
from flashverify.report.group import GroupKey
from tests.report.synthetic import result, stats


def walk(values):
    bias = Bias()
    for value in values:
        bias.add(value)
        yield bias


def test_nothing_has_no_bias():
    assert (Bias().mean, Bias().radius, Bias().significant, Bias().text()) == (None, None, False, "–")


def test_a_biased_output_is_found_and_stays_found():
    source = random.Random(1)
    seen = [b.significant for b in walk(source.gauss(0.02, 0.1) for _ in range(4000))]

    assert not seen[10]
    assert seen[-1]


def test_an_unbiased_output_is_hardly_ever_flagged_however_often_one_looks():
    flagged = 0
    for seed in range(200):
        source = random.Random(seed)
        flagged += any(
            b.significant for n, b in enumerate(walk(source.uniform(-0.3, 0.3) for _ in range(1000))) if n > 30
        )

    assert flagged <= 200 * 10 * ALPHA


def test_the_interval_is_that_of_the_mixture_boundary():
    *_, bias = walk([0.1, -0.1] * 500)

    # sigma = 0.1, n = 1000, rho^2 = (13.8155 + log 13.8155 + 1) / 1000: 0.1 sqrt(2 (n rho^2 + 1) / (n^2 rho^2) log(sqrt(n rho^2 + 1) / 0.001))
    assert bias.mean == pytest.approx(0, abs=1e-15)
    assert bias.radius == pytest.approx(0.01333, rel=2e-2)


def test_groups_collect_the_signed_ratios_and_the_cases_in_which_zeros_would_pass():
    cases = (("fv1", 0.02, 5), ("fv1 seq_q=2", 0.04, 0), ("fv1 seq_q=3", 0.06, -1))
    aggregate = Aggregate.of(
        result(text, stats=(stats("o", 0.5, signed=to_hex(signed), telling=telling),))
        for text, signed, telling in cases
    )
    (key, group), *_ = aggregate.groups.items()

    assert isinstance(key, GroupKey)
    assert (group.bias.count, group.dull) == (3, 1)
    assert group.bias.mean == pytest.approx(0.04)
