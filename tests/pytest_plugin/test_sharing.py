"""Two workers of xdist under a baseline: one seed, one header, one card a cause, one file of additions."""

import re

import pytest

from flashverify.baseline.reading import NAME
from tests.baseline.test_reading import KNOWN, RATIO, table
from tests.pytest_plugin.conftest import marked

KNOWN_TAIL = KNOWN | {"subject": '"tail"'}
GONE = KNOWN_TAIL | {"cause": '"gone"', "case": '"fv1 seq_k=3"'}
LOW = RATIO | {"subject": '"clean"', "worst": "1e-6"}
SOURCE = "".join(
    (
        marked("'tail', cases=20", name="test_tail"),
        marked("'slow-tail', cases=40", name="test_unknown"),
        marked("'clean', cases=['fv1 seq_k=9']", name="test_clean"),
    )
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(session):
    baseline = "\n".join(["format = 1", table("known", KNOWN_TAIL), table("known", GONE), table("ratio", LOW)])
    options = ("-n", "2", "--flashverify-seed", "random", "--flashverify-update-baseline")
    return session(SOURCE, *options, github="true", flashverify__baseline_toml=baseline)


def test_workers_share_a_seed_a_header_and_a_card(found):
    first, second = (found.outcome(f"test_unknown[cases-{group}]") for group in ("0-19", "20-39"))

    assert first[0] == second[0] == "failure"
    assert len(set(re.findall(r"seed (\d+)", found.text))) == 1
    assert found.text.count("Triton's CPU interpreter;") == 1
    both = first[1] + second[1]
    assert (
        both.count("smallest failing case: ") == both.count("the card stands at test_it.py::test_unknown[cases-") == 1
    )
    assert "confirmed by mpmath" in both
    assert re.search(r"slow-tail: 40 cases judged, 40 covering, \d+ failing", found.text)
    assert "flashverify_case" in found.properties("test_unknown[cases-0-19]")


def test_a_known_failure_is_expected_and_said_when_it_is_gone(found):
    assert found.outcome("test_tail[cases-0-19]")[0] == "skipped"  # as JUnit has expected failures
    assert "tail: scale-missing: it is being rewritten (https://example.org/7)" in found.text
    assert found.outcome("test_tail[known-2]")[0] == "passed"
    assert "known, not seen: tail: gone (https://example.org/7): its own case passes: take the entry out" in found.text


def test_github_gets_one_annotation_a_finding(found):
    lines = [line for line in found.text.splitlines() if line.startswith("::")]

    assert sorted(line.split()[0] for line in lines) == ["::error", "::notice"]
    assert any("file=slow-tail.py,line=1" in line for line in lines)


def test_a_ratio_above_its_ceiling_fails(found):
    tag, text = found.outcome("test_clean[0: seq_k=9]")

    assert tag == "failure"
    assert re.search(r"o fp16 of clean: error / bound \S+, the baseline lets 1e-06 stand\n  fv1 seq_k=9", text)


def test_what_is_unknown_is_added_without_a_reason(found):
    text = (found.folder / NAME).read_text()

    assert text.count("[[known]]") == 3
    assert re.search(r'subject = "slow-tail"\n.*\n(.*\n)*case = "fv1 .*"\nreason = ""\nlink = ""\ndate = 20', text)
    assert 'subject = "tail"\noutput = "o"' in text
    assert "each failure is refused until you give it a reason and a link" in found.text
