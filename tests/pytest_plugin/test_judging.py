"""Marked tests whose cases are judged in the process that the plugin keeps: one session in which nothing is explained."""

import re

import pytest

from flashverify.campaign.commands.listing import list_cases
from flashverify.campaign.protocol import CaseList
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.campaign.supervisor.schedule import batch_seed
from tests.pytest_plugin.conftest import FAKES, marked

OWN = "print('CASE', attention_case); assert isinstance(attention_case, flashverify.Case)"
SOURCE = "".join(
    (
        marked("'clean', cases=25", body="print('the body ran')", name="test_clean"),
        marked("'tail', cases=['fv1 seq_k=30 dim_v=8']", body="raise AssertionError('the body ran')", name="test_tail"),
        marked("'two', cases=['fv1 seq_k=30 dim_v=32 layout=bshd']", name="test_two"),
        marked("'segfault', cases=['fv1 seq_q=50', 'fv1 seq_q=5']", name="test_killed"),
        marked("'clean', cases=['fv1 seq_q=7'], checks=['accuracy', 'memory']", name="test_checks"),
        marked("'refuses', cases=['fv1']", name="test_unsupported"),
        marked("'harness', cases=['fv1']", name="test_harness"),
        marked("'missing', cases=2", name="test_missing"),
        marked("'clean', cases=2", body=OWN, parameters="attention_case", name="test_own"),
        "def test_alone(attention_case):\n    pass\n\n",
        "import hypothesis\nhypothesis.settings.register_profile('mine', max_examples=3)\n",
        "hypothesis.settings.load_profile('mine')\n",
        "def test_settings():\n    assert hypothesis.settings.default.max_examples == 3\n\n",
        "class TestUnit(__import__('unittest').TestCase):\n    @pytest.mark.flashverify('clean')\n    def test_unit(self):\n        pass\n",
    )
)


@pytest.fixture(scope="module")
def found(session):
    return session(SOURCE, "--flashverify-no-explain", "-s")


def test_a_clean_subject_passes_and_its_body_runs(found):
    assert {found.outcome(f"test_clean[cases-{group}]")[0] for group in ("0-19", "20-24")} == {"passed"}
    assert found.text.count("the body ran") == 2
    assert "clean: 26 cases judged, 26 covering, 0 failing" in found.text
    assert "clean: thin" in found.text
    assert found.properties("test_clean[cases-0-19]")["flashverify_case"].startswith("fv1 ")
    assert float(found.properties("test_clean[cases-0-19]")["flashverify_ratio"]) > 0


def test_the_header_has_seed_mode_and_machine(found):
    assert re.search(
        r"\nflashverify \S+: seed 0; Triton's CPU interpreter; .* CPU.*, torch \S+, triton \S+\n", found.text
    )


def test_a_failure_prints_its_card_and_its_replay_and_no_frame_of_the_plugin(found):
    tag, text = found.outcome("test_tail[0: seq_k=30 dim_v=8]")

    assert tag == "failure"
    assert "how sure: not verified yet" in text
    assert "\n  flashverify replay 'fv1 seq_k=30 dim_v=8' --subject tail --check accuracy\n" in text
    assert not re.search(r"Traceback|pytest_plugin|running\.py|the body ran", text)


def test_without_explanations_one_failure_has_a_card_and_the_others_a_line(found):
    text = found.outcome("test_two[0: seq_k=30 dim_v=32 layout=bshd]")[1]

    assert text.count("how sure: ") == text.count("flashverify replay ") == 1
    assert "not minimal: explaining is switched off (--flashverify-no-explain)" in text
    assert re.search(r"also failing, which may have the same cause:\n  (dq fp16 memory|o fp16 accuracy): ", text)


def test_settings_of_hypothesis_stay_the_projects(found):
    assert found.outcome("test_settings")[0] == "passed"


def test_a_case_that_kills_the_process_is_a_failure_and_the_next_one_is_judged(found):
    assert "the process died with SIGSEGV" in found.outcome("test_killed[0: seq_q=50]")[1]
    assert found.outcome("test_killed[1: seq_q=5]")[0] == "passed"


@pytest.mark.parametrize(
    ("name", "tag", "message"),
    [
        ("test_unsupported[0: default]", "skipped", "the subject does not accept the case: never"),
        ("test_harness[0: default]", "failure", "no verdict: the harness failed: SelfCheckError"),
        ("test_missing[cases-0-1]", "failure", "no verdict: subject 'missing' is not known"),
        ("test_alone", "error", "attention_case is not accepted without @pytest.mark.flashverify"),
        ("test_unit", "error", "is not accepted here: it marks test functions"),
    ],
)
def test_what_is_not_judged_is_no_pass(found, name, tag, message):
    assert found.outcome(name)[0] == tag
    assert message in found.outcome(name)[1]
    assert "During handling" not in found.text


def test_a_test_decides_about_a_case_of_its_own_drawn_as_a_search_draws_it(found, monkeypatch):
    monkeypatch.syspath_prepend(str(FAKES))
    setup = ProcessSetup("fake_toolkit:toolkit", "cpu", 60.0)
    drawn = list_cases(CaseList("clean", examples=2, seed=batch_seed(0, "clean", 0)), setup)

    assert found.outcome("test_own[case-1]")[0] == "passed"
    assert tuple(re.findall(r"CASE (fv1.*)", found.text)) == drawn
    assert len(set(drawn)) == 2
