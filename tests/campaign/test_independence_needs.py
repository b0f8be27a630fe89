"""What the minimal case of a finding says of its cause: what that needs, and where a cause with a name is silent."""

import msgspec
import pytest

from flashverify.campaign.causes import independence
from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.independence import has, is_silent, needed
from flashverify.campaign.causes.needs import NOT_YET
from flashverify.campaign.causes.sighting import Sighting
from flashverify.case.text import parse_case
from flashverify.judge.record import Folded
from flashverify.judge.verdict import Key
from tests.campaign.company_seen import failing
from tests.campaign.test_independence_parts import PLAIN, WINDOW, apart, finding


def test_a_case_that_waits_to_be_made_smaller_needs_nothing_and_one_that_could_not_be_needs_its_parts():
    found = finding("accuracy bound dq")

    assert not independence._outside(found, finding(case=WINDOW, not_minimal=NOT_YET), Company())
    assert independence._outside(found, finding(case=WINDOW, not_minimal="late"), Company())
    assert independence._outside(found, finding("accuracy empty-row o"), Company())
    assert not independence._outside(finding("accuracy empty-row lse"), finding("accuracy empty-row o"), Company())
    assert independence._outside(finding("accuracy empty-row lse"), finding("accuracy empty-row o", WINDOW), Company())
    bare = f"{PLAIN} backward=no"
    assert not independence._outside(finding("accuracy bound dq", bare), finding(case=bare), Company())


@pytest.mark.parametrize(
    ("of", "changes", "what"),
    [
        ("accuracy bound o", {}, {"a row"}),
        ("nonfinite nan lse", {}, {"a row"}),
        ("accuracy bound dk", {}, set()),
        ("memory touched o", {}, set()),
        ("accuracy empty-row dk", {}, {"empty rows"}),
        ("accuracy bound dk", {"case": "fv1 seq_q=4 backward=yes"}, set()),
        ("accuracy bound dk", {"case": "fv1", "ratio": 3.0}, {"16 bits"}),
        ("accuracy bound dk", {"case": "fv1", "ratio": 1e6}, set()),
        ("memory touched dk", {"case": "fv1", "ratio": 3.0}, set()),
        ("accuracy bound dk", {"case": f"{PLAIN} seq_q=0"}, {"no rows"}),
        ("accuracy bound dk", {"case": f"{PLAIN} batch=2 heads_q=2 heads_kv=1"}, {"several sequences", "groups of heads"}),
        ("accuracy bound dk", {"case": WINDOW}, {"has window"}),
    ],
)  # fmt: skip
def test_what_a_failure_needs_of_its_case(of, changes, what):
    ratio = changes.pop("ratio", None)
    one = finding(of, **changes)
    if ratio:
        one = msgspec.structs.replace(one, verdict=msgspec.structs.replace(one.verdict, ratio=ratio.hex()))

    assert needed(one) == what


def test_a_case_of_which_any_sequence_has_a_row_has_rows():
    assert "a row" in has(parse_case("fv1 batch=2 seq_q=4 qlen=0,4"))
    assert "a row" not in has(parse_case("fv1 seq_q=0"))
    assert "16 bits" in has(parse_case("fv1"))


@pytest.mark.parametrize(
    ("cause", "failures", "silent"),
    [
        (finding(name="a"), (), True),
        (finding(name="a"), ("accuracy bound o",), False),
        (finding(name="a"), ("memory touched o",), True),
        (finding(name="a"), ("accuracy bound dk",), True),
        (finding("accuracy bound dk", name="a"), (), False),
        (finding("memory touched o", name="a"), (), False),
        (finding(), (), False),
        (finding(case=WINDOW, name="a"), ("accuracy bound o",), True),
        (finding(case=WINDOW, name="a", not_minimal="late"), ("accuracy bound o",), False),
    ],
)
def test_a_named_cause_is_silent_where_the_case_lacks_what_it_needs_or_the_output_that_it_makes_wrong_is_right(
    cause, failures, silent
):
    wrong = tuple(failing(Key("k", *of.split(), "fp32")) for of in failures)
    of = Key("k", "accuracy", "bound", "dq", "fp32")

    assert is_silent(cause, Sighting(of, f"{PLAIN} backward=no", failing(of), failures=wrong)) is silent


@pytest.mark.parametrize(("of", "needs"), [("accuracy bound o", set()), ("accuracy bound dq", {"16 bits"})])
def test_16_bits_are_no_need_of_a_small_error_that_fp32_shows_too(of, needs):
    one, other = finding(case="fv1"), finding(of)
    small = msgspec.structs.replace(one.verdict, ratio=(3.0).hex())
    held = (Folded(other.key, "fv1", "it is wrong", "its minimal case shows it too"),)

    assert needed(msgspec.structs.replace(one, verdict=small, folded=held)) == {"a row"} | needs


@pytest.mark.parametrize(("value", "stay"), [("-inf", False), ("inf", True)])
def test_sizes_tell_nothing_of_a_row_that_the_subject_takes_for_one_without_keys(value, stay):
    lost = finding("nonfinite inf lse", f"{PLAIN} seq_q=2 seq_k=1")
    verdict = msgspec.structs.replace(lost.verdict, message=f"lse[0, 0, 1] is {value} where the exact value is 0")

    assert apart(msgspec.structs.replace(lost, verdict=verdict), finding(case=f"{PLAIN} seq_k=2")) is stay


def test_the_right_edge_of_a_window_is_what_a_causal_mask_is_and_not_the_reverse():
    causal, right, left = (f"{PLAIN} {part}" for part in ("causal=top-left", "window=1,0", "window=1,*"))

    assert not apart(finding(case=causal), finding("accuracy empty-row o", right))
    assert apart(finding(case=causal), finding("accuracy empty-row o", left))
    assert needed(finding(case=right)) == {"a row", "has window"}
