import pytest

from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.toolkit import bundled
from flashverify.errors import UsageError
from tests.checks.naive import make


@pytest.mark.parametrize("text", ["run", "fuzz", "only:accuracy", "only:exception"])
def test_a_name_survives_as_text(text):
    assert str(PlanName.parse(text)) == text


@pytest.mark.parametrize("text", ["", "Run", "only", "only:", "run:accuracy", "fuzzy"])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(UsageError, match="run, fuzz, outside or only:CHECK"):
        PlanName.parse(text)


def test_failures_of_a_whole_process_are_seen_again_under_every_check():
    assert [str(PlanName.of_check(check)) for check in ("accuracy", "crash", "hang", "")] == [
        "only:accuracy",
        "run",
        "run",
        "run",
    ]


def test_the_toolkit_refuses_a_check_that_does_not_exist():
    from flashverify import parse_case

    with pytest.raises(UsageError, match="check='speed' is not accepted: one of memory"):
        bundled.judge(make(), parse_case("fv1 dtype=fp32"), "only:speed")
