"""SARIF, annotations, summary, comment, badge and JUnit of runs made up for it, with a baseline and without."""

import json
import re
from xml.etree import ElementTree

import pytest

from flashverify.baseline.assessment import assess
from flashverify.baseline.reading import read_baseline
from flashverify.campaign.store.reader import open_run
from flashverify.ci.badge import render_badge
from flashverify.ci.comment import MARKER, MOST_COMMENT, comment, marked
from flashverify.ci.github import MOST_ANNOTATIONS, MOST_SUMMARY, annotation_lines, append_summary
from flashverify.ci.outcome import Outcome
from flashverify.ci.sarif import place_of, render_sarif
from flashverify.judge.record import Diagnosis, Repair
from flashverify.judge.verdict import Key
from flashverify.report.content import build_report
from flashverify.report.junit import render_junit
from flashverify.subjects.source import source_of
from tests.baseline.test_reading import KNOWN, table, written
from tests.report.synthetic import explained, failing, finding, result, write_run

HOSTILE = "a%0A::error::b\r\n::set-output name=x::y,:"


def outcome(folder, findings, *, known=(), exceeded=(), code=1, headline="FAIL: 1 finding"):
    results = [failing(record.case, output=record.key.output) for record in findings] + [result("fv1 seq_k=3")]
    run = open_run(write_run(folder / "run", results, findings))
    held = None
    if known or exceeded:
        entries = [table("known", KNOWN | {"subject": '"kernel"', "cause": f'"{cause}"'}) for cause in known]
        held = assess(read_baseline(written(folder, *entries)), findings, {"kernel"}).with_ratios(exceeded)
    return Outcome(build_report(run), headline, code, held)


def annotated(found, root):
    return annotation_lines([(card, found.known_as(card)) for card in found.report.findings], found.errors, root)


def test_sarif_has_what_code_scanning_needs(tmp_path):
    (tmp_path / "my").mkdir()
    (tmp_path / "my/module.py").write_text("import x\n\n\n@subject()\ndef kernel(p):\n    pass\n")
    record = explained(subject_spec=f"{tmp_path}/my/module.py:kernel")
    other = finding(subject_spec="gone.module:kernel", key=Key("kernel", "memory", "guard", "dq", "fp16"))

    found = json.loads(render_sarif(outcome(tmp_path, (record, other)), tmp_path, "1.2.3"))

    assert found["version"] == "2.1.0"
    (run,) = found["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {each["ruleId"] for each in run["results"]} == rules == {"accuracy/bound", "memory/guard"}
    places = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert [(p["artifactLocation"]["uri"], p["region"]["startLine"]) for p in places] == [
        ("my/module.py", 5),
        ("gone/module.py", 1),
    ]
    assert "suppressions" not in run["results"][0]
    assert len({each["partialFingerprints"]["cause/v1"] for each in run["results"]}) == 2
    assert "flashverify replay" in run["results"][0]["message"]["text"]
    held = json.loads(render_sarif(outcome(tmp_path / "2", (record,), known=("causal-one-key-more",)), tmp_path, "1"))
    (suppression,) = held["runs"][0]["results"][0]["suppressions"]
    assert suppression == {"kind": "external", "justification": "it is being rewritten (https://example.org/7)"}


def test_sarif_has_the_places_of_repairs_and_those_that_the_files_allow_as_fixes(tmp_path):
    (tmp_path / "device").mkdir()
    (tmp_path / "device/walk.py").write_text("def walk(x):\n    if x:\n        x *= 2\n    return x\n")
    repairs = (
        Repair("device/walk.py", 4, "walk", "return x", "return -x", 9, 8),
        Repair("device/walk.py", 3, "walk", "x *= 2", "", 9, 8),
        Repair("device/walk.py", 3, "walk", "x *= 3", "x *= 4", 9, 8),
        Repair("elsewhere/walk.py", 3, "walk", "x *= 2", "", 9, 8),
        Repair("../outside.py", 1, "walk", "a", "b", 9, 8),
    )
    (tmp_path.parent / "outside.py").write_text("a\n")
    record = finding(diagnosis=Diagnosis(sentence="Nothing explains it.", repairs=repairs))

    (found,) = json.loads(render_sarif(outcome(tmp_path, (record,)), tmp_path, "1"))["runs"][0]["results"]

    assert "+ return -x" in found["message"]["text"]
    words = "device/walk.py:4 (walk) changed so, it is right in 9 further cases, of which 8 fail without"
    place = {"artifactLocation": {"uri": "device/walk.py"}, "region": {"startLine": 4}}
    assert found["relatedLocations"][0] == {"physicalLocation": place, "message": {"text": words}}
    assert [each["physicalLocation"]["region"]["startLine"] for each in found["relatedLocations"]] == [4, 3, 3]
    assert found["fixes"][0]["description"]["text"] == words
    changes = [each["artifactChanges"][0]["replacements"][0] for each in found["fixes"]]
    assert [(change["deletedRegion"]["startLine"], change["insertedContent"]["text"]) for change in changes] == [
        (4, "    return -x\n"),
        (3, "        pass\n"),
    ]
    assert changes[0]["deletedRegion"] == {"startLine": 4, "startColumn": 1, "endLine": 5, "endColumn": 1}
    (line,) = annotated(outcome(tmp_path / "2", (record,)), tmp_path)
    assert "title=device/walk.py%3A4%3A right with `return -x`::" in line
    assert "%0A    + return -x%0A" in line


def test_a_subject_is_placed_without_being_imported(tmp_path, monkeypatch):
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart/kernels.py").write_text("raise SystemExit\nfirst = 1\nmine: int = subject()(f)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert source_of("apart.kernels:mine") == (tmp_path / "apart/kernels.py", 3)
    assert source_of("apart.kernels:other.part")[1] == 1
    assert source_of("apart.none:mine") is None
    assert source_of("bundled")[0].name == "bundled.py"
    assert place_of("apart.none:mine", tmp_path) == ("apart/none.py", 1)


def test_annotations_keep_to_their_limits_and_carry_no_other_command(tmp_path):
    many = [
        finding(key=Key("kernel", "accuracy", "bound", f"o{n}", "fp16"), output="o", seconds=float(n))
        for n in range(12)
    ]
    sentence = explained().diagnosis.__class__("x", HOSTILE)

    lines = annotated(outcome(tmp_path, many), tmp_path)
    (hostile,) = annotated(outcome(tmp_path / "2", (explained(diagnosis=sentence),)), tmp_path)

    assert len(lines) == MOST_ANNOTATIONS
    assert lines[0].startswith("::error file=my/module.py,line=1,title=")
    assert lines[-1].endswith("::3 more are in the summary of this step")
    assert "\n" not in hostile
    assert "\r" not in hostile
    head, data = hostile.removeprefix("::error ").split("::", 1)
    assert re.fullmatch(r"file=[^,:]*,line=1,title=[^,:]*", head)
    assert "%250A" in data


def test_a_known_finding_is_a_notice_and_a_ceiling_an_error(tmp_path):
    lines = annotated(
        outcome(tmp_path, (explained(),), known=("causal-one-key-more",), exceeded=("o fp16 is high",)), tmp_path
    )
    nothing = annotated(outcome(tmp_path / "2", (), code=3, headline="NO VERDICT: no case was judged"), tmp_path)

    assert lines[0] == "::error title=Above what the baseline lets stand::o fp16 is high"
    assert lines[1].startswith("::notice file=my/module.py,line=1,title=known%3A The causal mask")
    assert nothing == ["::error title=flashverify::NO VERDICT: no case was judged"]


def test_a_summary_never_passes_the_limit_of_its_step(tmp_path):
    file = tmp_path / "summary.md"

    append_summary(file, "first")
    append_summary(file, "x" * MOST_SUMMARY)
    append_summary(file, "last")

    assert file.read_text().splitlines() == [
        "first",
        "flashverify: the report is too long for this summary; report.html has it.",
        "last",
    ]
    file.write_text("x" * MOST_SUMMARY)
    append_summary(file, "more")
    assert file.stat().st_size == MOST_SUMMARY


def test_a_comment_begins_with_its_marker_and_the_verdict_under_the_baseline(tmp_path):
    plain = comment(outcome(tmp_path, (explained(),)))
    held = outcome(tmp_path / "2", (explained(),), known=("causal-one-key-more",), code=0, headline="PASS: no finding")

    assert plain.startswith(f"{MARKER}\n# ❌ 1 finding")
    text = comment(held)
    assert text.startswith(f"{MARKER}\n# ✅ PASS: no finding\n")
    assert "it is being rewritten" in text.partition("The run itself")[0]
    long = marked("line\n" * 40_000)
    assert len(long) <= MOST_COMMENT
    assert long.endswith("*The rest is left out for length.*\n")


@pytest.mark.parametrize(
    ("findings", "known", "code", "message", "color"),
    [
        ((explained(),), (), 1, "1 finding", "red"),
        ((explained(),), ("causal-one-key-more",), 0, "2 cases, 1 known", "brightgreen"),
        ((), (), 0, "1 case", "yellow"),
        ((), (), 3, "no verdict", "lightgrey"),
    ],
)
def test_a_badge_says_the_state(tmp_path, findings, known, code, message, color):
    found = json.loads(render_badge(outcome(tmp_path, findings, known=known, code=code)))

    assert found == {"schemaVersion": 1, "label": "flashverify", "message": message, "color": color}


def test_junit_skips_a_check_whose_failures_are_known(tmp_path):
    record = explained()

    def problems(found):
        root = ElementTree.fromstring(render_junit(found.report, found.known_buckets, found.exceeded))
        return {case.get("name"): [each.tag for each in case] for case in root.iter("testcase")}

    assert problems(outcome(tmp_path, (record,)))["accuracy"] == ["failure"]
    assert problems(outcome(tmp_path / "2", (record,), known=("causal-one-key-more",)))["accuracy"] == ["skipped"]
    both = problems(
        outcome(tmp_path / "3", (record, finding(output="dv")), known=("causal-one-key-more",), exceeded=("x",))
    )
    assert both["accuracy"] == both["ratios"] == ["failure"]
