import json
import math
import re
import subprocess
import sys
from xml.etree import ElementTree

import msgspec
import pytest

from flashverify.errors import StoreError
from flashverify.judge.record import Summary
from flashverify.judge.verdict import Key, OutputStats, Status, Verdict, to_hex
from flashverify.report import write_junit, write_report
from tests.report.page import Page
from tests.report.synthetic import campaign, failing, finding, header, result, stats, write_run


def pages(tmp_path, *args, **kwargs):
    run = write_run(tmp_path / "run", *args, **kwargs)
    page, markdown, data = (path.read_text(encoding="utf-8") for path in write_report(run))
    return Page(page), markdown, json.loads(data)


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """A campaign of two subjects with two findings."""
    second = finding(
        "my.module:attention", "dk", key=Key("my.module:attention", "padding", "padding", "dk", "bf16"), seconds=300.0
    )
    record = header(form={"flashverify.prefill": "exp=ex2 declared"}, command="flashverify fuzz --hours 2")
    run = write_run(
        tmp_path_factory.mktemp("night") / "run", campaign(80), (finding("my.module:attention"), second), record
    )
    write_report(run)
    return run


def test_the_verdict_comes_first(night):
    page = Page((night / "report.html").read_text(encoding="utf-8"))
    assert next(tag for tag, _ in page.tags if tag in ("h1", "h2")) == "h1"
    assert "2 findings" in page.text[: page.text.index("Findings")]
    assert (night / "report.md").read_text(encoding="utf-8").startswith("# ❌ 2 findings\n")
    assert json.loads((night / "report.json").read_text(encoding="utf-8"))["verdict"] == "findings"


def test_a_finding_is_shown_with_all_that_reproduces_it(night):
    page, markdown = (
        Page((night / "report.html").read_text(encoding="utf-8")).text,
        (night / "report.md").read_text(encoding="utf-8"),
    )
    for text in (page, markdown):
        for part in (
            "dq is outside its bound",
            "fv1 seq_q=17 seq_k=1",
            "findings/finding-0/repro.py",
            "1.25",
            "confirmed by mpmath",
        ):
            assert part in text
        assert "flashverify replay 'fv1 seq_q=17 seq_k=1' --subject my.module:kernel --check accuracy" in text


def test_sections_and_settings_are_there(night):
    page, markdown = (
        Page((night / "report.html").read_text(encoding="utf-8")),
        (night / "report.md").read_text(encoding="utf-8"),
    )
    for part in (
        "exp=ex2 declared",
        "flashverify fuzz --hours 2",
        "3.7.1",
        "Triton's CPU interpreter",
        "page_size is not supported",
    ):
        assert part in page.text
        assert part in markdown
    assert len([a for tag, a in page.tags if tag == "svg"]) == 2 * 2 * 6
    assert all(a.get("aria-label") for tag, a in page.tags if tag == "svg")
    assert all(a.get("scope") for tag, a in page.tags if tag == "th")


def test_the_page_needs_nothing_but_itself(night):
    text = (night / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?:|//[a-z]|@import|data:", text)
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href"):
            assert re.match(r"#|findings/|$", attributes.get(name) or "")


def test_ids_are_unique(night):
    ids = [a["id"] for _, a in Page((night / "report.html").read_text(encoding="utf-8")).tags if "id" in a]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(night, tmp_path):
    pages = [night / name for name in ("report.html", "report.md", "report.json")]
    first = [path.read_bytes() for path in pages]
    code = (
        f"import sys, pathlib; from flashverify.report import write_report; write_report(pathlib.Path({str(night)!r}))"
    )
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        env={"PYTHONHASHSEED": "77", "MPLCONFIGDIR": str(tmp_path), "PATH": ""},
    )
    assert [path.read_bytes() for path in pages] == first


def test_neither_torch_nor_triton_nor_matplotlib_is_imported_needlessly():
    code = (
        "import sys, flashverify.comparing.comparison, flashverify.report.html, flashverify.report.markdown, flashverify.report.junit\n"
        "assert not {'torch', 'triton', 'matplotlib', 'jinja2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("results", "title", "level"),
    [
        ((), "No verdict: no case ran", "none"),
        (
            (result(verdicts=(Verdict("supports", Status.UNSUPPORTED, message="no"),), stats=()),),
            "No verdict: the only case was refused",
            "none",
        ),
        (
            (result(verdicts=(Verdict("harness", Status.ERROR, message="no"),), stats=()),),
            "No verdict: no case could be judged",
            "none",
        ),
        ((result(), result(verdicts=())), "No verdict: 1 case could not be judged", "none"),
        ((result(),), "No findings in 1 case on Triton's CPU interpreter", "clean"),
        (
            (result(evidence="NVIDIA H200 (sm_90)"),) * 1200,
            "No findings in 1,200 cases on NVIDIA H200 (sm_90)",
            "clean",
        ),
        ((result(stats=()),), "No verdict: no case counts as coverage", "none"),
        ((failing(),), "1 failure, not yet made minimal", "findings"),
    ],
)
def test_headlines(tmp_path, results, title, level):
    page, markdown, data = pages(tmp_path, results)
    assert title in page.text
    assert title in markdown
    assert data["verdict"] == level


@pytest.mark.parametrize("summary", [None, Summary(0, 0, 0, 0, 0, 0.0, "interrupted", 130)])
def test_a_run_without_results_file_and_end(tmp_path, summary):
    run = write_run(tmp_path / "run", (), (), None, summary)
    (run / "results.jsonl").unlink()
    write_report(run)
    assert "No verdict" in (run / "report.md").read_text(encoding="utf-8")


def test_a_run_that_was_stopped_is_no_pass(tmp_path):
    _, _, data = pages(tmp_path, (result(),), summary=Summary(1, 0, 1, 0, 0, 1.0, "workers", 3))
    assert data["verdict"] == "none"
    assert "workers died" in data["title"]


def test_damaged_lines_are_told(tmp_path):
    run = write_run(tmp_path / "run", (result(),))
    with (run / "results.jsonl").open("a") as file:
        file.write("{damaged\n")
    write_report(run)
    assert "1 damaged line" in Page((run / "report.html").read_text(encoding="utf-8")).text


def test_nan_and_infinite_ratios_are_shown_in_red(tmp_path):
    odd = (stats("o", math.nan), stats("lse", math.inf, (0, 0, 0)), stats("dq", 1.0000001), stats("dk", 1.0))
    page, markdown, data = pages(tmp_path, (result(stats=odd),))
    cells = [a["class"] for tag, a in page.tags if tag == "td" and a.get("class") in ("calm", "near", "over", "none")][
        :4
    ]
    assert cells == ["over", "over", "over", "near"]
    assert "| `dq` | **1.0000001** |" in markdown
    assert data["worst"]["ratio"] == {"value": None, "hex": "nan"}


def test_json_keeps_ratios_exactly(tmp_path):
    _, _, data = pages(tmp_path, (result(stats=(stats("o", 1 / 3),)),), (finding(),))
    (group,) = data["subjects"]["kernel"]["groups"]
    assert float.fromhex(group["worst"]["ratio"]["hex"]) == 1 / 3 == group["worst"]["ratio"]["value"]
    assert group["percentiles"]["p99.9"]["hex"] == to_hex(1 / 3)
    assert group["by_length"] == [{"up_to": 1, "ratio": {"value": 1 / 3, "hex": to_hex(1 / 3)}}]
    assert data["format"] == 1
    assert data["findings"][0]["confirmation"]["expected"] == to_hex(1.25)
    assert data["run"]["format"] == 1


def test_markdown_stays_below_its_limit(tmp_path):
    many = [
        finding(key=Key(f"subject-{n}", "accuracy", "bound", "dq", "fp16"), case="fv1 " + "x" * 20_000)
        for n in range(30)
    ]
    _, markdown, data = pages(tmp_path, (failing(),), many)
    assert len(markdown) < 65_536
    assert "left out for length" in markdown
    assert len(data["findings"]) == 30


def test_junit_counts(night, tmp_path):
    write_junit(night, tmp_path / "junit.xml")
    suites = {s.get("name"): s for s in ElementTree.parse(tmp_path / "junit.xml").getroot()}
    assert suites["flashverify.prefill"].get("failures") == "0"
    assert suites["my.module:attention"].get("failures") == "1"
    assert "flashverify replay" in suites["my.module:attention"].find("testcase/failure").text


def test_junit_without_a_verdict_is_an_error(tmp_path):
    write_junit(write_run(tmp_path / "run"), tmp_path / "junit.xml")
    assert ElementTree.parse(tmp_path / "junit.xml").find("testsuite").get("errors") == "1"


def test_no_run_folder(tmp_path):
    with pytest.raises(StoreError, match="not a run folder"):
        write_report(tmp_path)


def test_nothing_else_is_left_in_the_folder(night):
    assert {p.name for p in night.iterdir()} == {
        "run.json",
        "results.jsonl",
        "summary.json",
        "findings",
        "report.html",
        "report.md",
        "report.json",
    }


def test_case_results_round_trip():
    for one in campaign(30):
        assert msgspec.json.decode(one.to_json(), type=type(one)) == one
        assert all(isinstance(s, OutputStats) for s in one.stats)
