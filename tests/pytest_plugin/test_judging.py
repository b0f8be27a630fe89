"""Marked tests whose cases are judged in the process that the plugin keeps."""

import re
from xml.etree import ElementTree

import pytest

from tests.pytest_plugin.conftest import FAKES, marked

pytest_plugins = ["pytester"]


def test_a_clean_subject_passes_and_its_body_runs(project):
    done = project(marked("'clean', cases=25", body="print('the body ran')"), "-s")

    done.assert_outcomes(passed=2)
    text = done.stdout.str()
    assert text.count("the body ran") == 2
    assert re.search(r"flashverify \S+: seed 0; Triton's CPU interpreter; .* CPU", text)
    assert "clean: 25 cases judged, 25 covering, 0 failing" in text
    assert "clean: thin" in text


def test_a_failure_prints_its_card_once_and_no_frame_of_the_plugin(project):
    done = project(marked("'tail', cases=40", body="raise AssertionError('the body ran')"), "--junitxml=j.xml")

    done.assert_outcomes(failed=2)
    text = done.stdout.str()
    assert text.count("how sure: failed 1 of 1 fresh run, confirmed by mpmath") == 1
    assert "smallest failing case: 1 row, 17 keys" in text
    assert "the card stands at test_it.py::test_mine[cases-0-19]" in text
    assert text.count("flashverify replay 'fv1 ") == 2
    assert re.search(r"\d+ of 20 cases of this test failed, drawn from seed 0", text)
    assert not {"Traceback", "pytest_plugin", "the body ran"} & set(
        re.findall(r"Traceback|pytest_plugin|the body ran", text)
    )
    first, second = ElementTree.parse(project.pytester.path / "j.xml").getroot().iter("testcase")
    for case in (first, second):
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        assert properties["flashverify_case"].startswith("fv1 ")
        assert float(properties["flashverify_ratio"]) > 0
        assert properties["flashverify_diagnosis"]
    assert first.find("failure") is not None


def test_without_explaining_a_failure_stands_as_it_was_seen(project):
    done = project(marked("'tail', cases=['fv1 seq_k=30 dim_v=8']"), "--flashverify-no-explain")

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*how sure: not verified yet*", "*flashverify replay 'fv1 seq_k=30 dim_v=8'*"])


def test_a_case_that_kills_the_process_is_a_failure_and_the_next_one_is_judged(project):
    cases = ["fv1 seq_q=50", "fv1 seq_q=5"]
    done = project(marked(f"'segfault', cases={cases}"), "--flashverify-no-explain", "-v")

    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(["*the process died with SIGSEGV*"])


def test_what_is_not_judged_is_no_pass(project):
    source = marked("'clean', cases=['fv1 seq_q=7']").replace("test_mine", "test_refused")
    source += marked("'refuses', cases=['fv1']").replace("test_mine", "test_unsupported")
    source += marked("'harness', cases=['fv1']").replace("test_mine", "test_harness")
    source += marked("'missing', cases=2").replace("test_mine", "test_missing")
    done = project(source, "-rs")

    done.assert_outcomes(skipped=1, failed=2, passed=1)
    done.stdout.fnmatch_lines(
        ["*no verdict: the harness failed: SelfCheckError*", "*no verdict: subject 'missing' is not known*", "*never"]
    )


def test_a_test_decides_about_a_case_of_its_own(project):
    body = "import flashverify\n    assert isinstance(attention_case, flashverify.Case) and attention_case.seq_k < 65"
    done = project(marked("'clean', cases=4", body=body, parameters="attention_case"))
    alone = project("def test_mine(attention_case):\n    pass\n")

    done.assert_outcomes(passed=4)
    alone.assert_outcomes(errors=1)
    alone.stdout.fnmatch_lines(["*attention_case is not accepted without @pytest.mark.flashverify*"])


def test_the_same_seed_draws_the_same_cases_and_another_seed_others(project):
    source = marked("'clean', cases=2", body="print('CASE', attention_case)", parameters="attention_case")

    def drawn(*options):
        return re.findall(r"CASE (fv1.*)", project(source, "-s", *options).stdout.str())

    assert len(drawn()) == 2
    assert drawn() == drawn("--flashverify-seed", "0") != drawn("--flashverify-seed", "5")


@pytest.mark.slow
def test_workers_of_xdist_share_one_card_and_one_header(project):
    path = f"import sys\nsys.path.insert(0, {str(FAKES)!r})\n"
    project.pytester.makeconftest(
        f"{path}from flashverify.campaign import toolkit\ntoolkit.BUNDLED = 'fake_toolkit:toolkit'"
    )
    done = project(marked("'tail', cases=40"), "-n", "2", "-p", "xdist", "--flashverify-seed", "random")

    done.assert_outcomes(failed=2)
    text = done.stdout.str()
    seeds = set(re.findall(r"seed (\d+)", text))
    assert len(seeds) == 1
    assert text.count("Triton's CPU interpreter;") == 1
    assert text.count("smallest failing case:") == text.count("the card stands at") == 1
    assert re.search(r"tail: 40 cases judged, 40 covering, \d+ failing", text)
