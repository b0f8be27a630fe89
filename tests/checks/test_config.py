"""Launch parameters: a launch that is wrong where another one is right."""

import dataclasses
from itertools import pairwise

import pytest

from flashverify import Supports, parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.config import spread
from tests.checks.naive import SUPPORTS, attention, make

LAUNCH = (("block_m", (16, 32)), ("block_n", (16, 32)))
CASE = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=40 seq_k=40 dtype=fp32 causal=top-left seed=1 backward=no")
ACCEPTS = dataclasses.replace(SUPPORTS, launch=LAUNCH)


def leaking(p):
    """Future keys enter the rows whose diagonal tile is wider than it is high."""
    launch = dict(p.case.launch)
    return attention(p, shift=int(launch.get("block_m", 32) < launch.get("block_n", 32)))


def failures(subject, case=CASE):
    return judge_case(subject, case, Plan.only("config", case)).failures


def test_a_launch_that_leaks_is_named_beside_one_that_does_not():
    found = failures(make(leaking, supports=ACCEPTS))

    assert [(v.check, v.error) for v in found] == [("config", "config")]
    assert found[0].message.startswith(
        "launch block_m=16,block_n=32 is wrong where of the subject's own choice is right: "
    )


def test_the_case_s_own_launch_may_be_the_wrong_one():
    case = dataclasses.replace(CASE, launch=(("block_m", 16), ("block_n", 32)))
    found = failures(make(leaking, supports=ACCEPTS), case)

    assert [v.message.split(":")[0] for v in found] == [
        "launch block_m=16,block_n=32 is wrong where block_m=16,block_n=16 is right"
    ]


@pytest.mark.parametrize(
    ("function", "supports"),
    [(attention, ACCEPTS), (lambda p: attention(p, shift=1), ACCEPTS), (attention, SUPPORTS)],
    ids=["all right", "all wrong", "no launches"],
)
def test_launches_that_agree_are_no_failure(function, supports: Supports):
    assert failures(make(function, supports=supports)) == ()


def test_launches_are_spread_over_the_whole_list():
    launches = [(("block_m", n),) for n in range(100)]

    assert spread(launches[:3], 16, 7) == launches[:3]
    chosen = spread(launches, 16, 3)
    assert len(set(chosen)) == 16
    assert max(b[0][1] - a[0][1] for a, b in pairwise(chosen)) <= 7
