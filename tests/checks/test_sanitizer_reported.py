"""A line that relies on undefined lanes is reported once where others know of it, and not at all where they are declared to be zero."""

import dataclasses

import pytest

from flashverify import parse_case
from flashverify.campaign.toolkit import _Bundled
from flashverify.checks import Plan, judge_case
from flashverify.errors import UsageError
from flashverify.subjects import load_subject
from tests.checks.test_sanitizer import _sanitized  # noqa: F401 - every test runs under it

DOCUMENT_CASE = parse_case("fv1 seq_q=5 seq_k=5 dim_qk=16 dim_v=16 layout=bshd backward=no")


def undefined_lanes(subject, plan):
    result = judge_case(subject, DOCUMENT_CASE, plan)
    return [v.message for v in result.failures if v.error == "undefined-lane"], result.warnings


def test_a_line_that_relies_on_undefined_lanes_is_reported_once_where_others_know_of_it():
    subject, plan = load_subject("seed-document"), Plan(checks=("sanitizer",), reported=set())
    first, no_warning = undefined_lanes(subject, plan)
    again, warnings = undefined_lanes(subject, plan)

    assert first
    assert not no_warning
    assert not again
    assert {place.split(": ")[1] for place in warnings} == {message.split(": ")[0] for message in first}
    assert all("reported once" in warning for warning in warnings)


def test_a_line_that_was_not_reported_is_found_beside_one_that_was():
    subject, plan = load_subject("seed-document"), Plan(checks=("sanitizer",), reported=set())
    undefined_lanes(subject, plan)
    kept = sorted(plan.reported, key=str)
    plan.reported.remove(kept[0])
    [message], _ = undefined_lanes(subject, plan)

    assert message.startswith(f"{kept[0]}: ")


def test_a_campaign_judges_so_and_a_check_that_is_asked_for_does_not():
    subject, kit = load_subject("seed-document"), _Bundled()
    found = [
        [v.error for v in kit.judge(subject, DOCUMENT_CASE, plan).failures]
        for plan in ("run", "run", "only:sanitizer", "only:sanitizer")
    ]

    assert [bool(errors) for errors in found] == [True, False, True, True]


def test_masked_lanes_may_be_declared_to_be_zero():
    subject = load_subject("seed-document")
    declared = Contracted(subject, dataclasses.replace(subject.contract, masked_loads="zero"))

    assert undefined_lanes(subject, Plan(checks=("sanitizer",)))[0]
    assert undefined_lanes(declared, Plan(checks=("sanitizer",))) == ([], ())
    with pytest.raises(UsageError, match=r"Contract.masked_loads='nan'. is not accepted: 'undefined' or 'zero'"):
        dataclasses.replace(subject.contract, masked_loads="nan")


class Contracted:
    """A subject with another contract."""

    def __init__(self, inner, contract):
        self.inner, self.contract = inner, contract

    def __getattr__(self, name):
        return getattr(self.inner, name)
