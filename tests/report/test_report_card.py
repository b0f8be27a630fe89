"""The card of a finding in every report: what it says, and in which order."""

import json

import pytest

from flashverify.campaign.card.content import card_of
from flashverify.campaign.card.lines import card_lines
from flashverify.judge.record import Diagnosis, Summary
from flashverify.judge.verdict import Key
from flashverify.report import write_junit, write_report
from tests.report.page import Page
from tests.report.synthetic import explained, failing, finding, header, raised, result, write_run

TITLE = "The causal mask is shifted by one: each row also sees the key after its own, only where Sq > Sk"
ALSO = "o, lse, dq in fp16, bf16, fp32, by the checks accuracy, padding: 3 failures of the same cause"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("cards") / "run", (failing(),), (explained(), raised()))


@pytest.fixture(scope="module")
def texts(run):
    return [path.read_text(encoding="utf-8") for path in write_report(run)]


def in_order(text, *parts):
    places = [text.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places), [parts[n] for n in range(len(parts)) if places[n] != sorted(places)[n]]


def test_the_terminal_says_what_where_since_when_and_how_sure():
    lines = card_lines(card_of(explained()), number=1)

    assert lines[0] == f"1. {TITLE}"
    assert lines[1] == "  o is outside its bound, kernel, fp16, accuracy, 12 cases"
    in_order(
        "\n".join(lines),
        "o[0, 0, 16, 3] is 1.5 where the exact value is 1.25",
        f"also: {ALSO}",
        "diagnosis: causal-one-key-more: The causal mask",
        "only where: seq_q > seq_k",
        "evidence: 11 further cases agree",
        "would be within bounds under Form(p='bf16')",
        "where: o: 6 of 16 elements",
        "map: o: 64 query rows to the right, 4 heads of all sequences downwards, in the case that showed it first",
        "    head 0 " + "." * 64,
        "    head 1 " + "." * 40 + "#" * 24,
        "    head 3 " + "." * 40 + "+" * 12 + "#" * 12,
        "smallest failing case: 17 rows, 1 key, head dim 16",
        "how sure: failed 3 of 3 fresh runs, confirmed by mpmath: got 1.5, exact 1.25, bound 0.01",
        "  flashverify replay 'fv1 seq_q=17 seq_k=1'",
    )


def test_sentences_are_wrapped_to_the_terminal_and_what_is_copied_is_not():
    record = explained(case="fv1 seq_q=17 seq_k=1 regime=ties dim_qk=64 dim_v=64 heads_q=4 layout=bshd")
    lines = card_lines(card_of(record), width=80)

    long = [line for line in lines if len(line) > 80]
    assert long == [lines[-1]]
    assert "layout=bshd' --subject my.module:kernel --check accuracy" in lines[-1]
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(card_lines(card_of(record))).split())


def test_a_traceback_stands_in_the_card_as_it_was(texts):
    lines = card_lines(card_of(raised()))
    assert lines[3:6] == [
        "    Traceback (most recent call last):",
        '      File "kernel.py", line 7, in forward',
        "    ValueError: D < 16 & odd",
    ]
    page, markdown, _ = texts
    assert (
        "last):\n  File &#34;kernel.py&#34;, line 7, in forward\nValueError: D &lt; 16 &amp; odd</code></pre>" in page
    )
    assert "```\nTraceback (most recent call last):\n  File" in markdown


@pytest.mark.parametrize("number", [0, 1])
def test_pages_begin_with_an_index_and_say_all_that_the_terminal_says(texts, number):
    text = (Page(texts[0]).text, texts[1])[number]
    parts = (
        TITLE.partition(":")[0],
        "ValueError is raised",
        "1.5 where the exact value is 1.25",
        "seq_q > seq_k",
        "11 further cases agree",
        "Form(p='bf16')",
        "6 of 16 elements are wrong",
        "17 rows, 1 key, head dim 16",
        "64 query rows to the right",
        "failed 3 of 3 fresh runs, confirmed by mpmath",
    )
    for part in parts:
        assert part in text
    assert ALSO in text
    assert "its minimal case is explained" in text
    index = text[: text.index("1.5 where")]
    assert index.index(TITLE.partition(":")[0]) < index.index("ValueError is raised")


def test_the_index_leads_to_the_cards_of_which_only_the_first_is_open(texts):
    page = Page(texts[0])
    targets = [a["href"] for tag, a in page.tags if tag == "a" and a.get("href", "").startswith("#")]
    assert targets == ["#finding-1", "#finding-2"]
    assert {"finding-1", "finding-2"} <= {a.get("id") for _, a in page.tags}
    cards = [a for tag, a in page.tags if tag == "details" and "finding" in a.get("class", "")]
    assert ["open" in card for card in cards] == [True, False]
    assert "[1](#finding-1)" in texts[1]
    assert texts[1].count("<summary>The card</summary>") == 1


def test_the_map_is_drawn_where_elements_fail(texts):
    page = Page(texts[0])
    (at,) = [n for n, (tag, a) in enumerate(page.tags) if tag == "svg" and a.get("class") == "map"]
    rects = [a for tag, a in page.tags[at:] if tag == "rect" and a.get("class") == "wrong"]
    assert [(r["x"], r["y"], r["width"], r["fill-opacity"]) for r in rects] == [
        ("40", "1", "24", "1.00"),
        ("40", "3", "12", "0.58"),
        ("52", "3", "12", "1.00"),
    ]


def test_json_has_the_sentences_and_the_record(texts):
    first, second = json.loads(texts[2])["findings"]
    assert (first["title"], first["failure"], first["also"]) == (TITLE, "o is outside its bound", ALSO)
    assert (first["sure"], first["confirmed"]) == (["failed 3 of 3 fresh runs", "confirmed by mpmath"], True)
    assert first["smallest"] == "17 rows, 1 key, head dim 16"
    assert first["diagnosis"]["conditions"] == ["seq_q > seq_k"]
    assert first["first_map"]["cells"][1] == "0" * 40 + "9" * 24
    assert [folded["key"]["output"] for folded in first["folded"]] == ["lse", "dq", "o"]
    assert second["verdict"]["traceback"].endswith("ValueError: D < 16 & odd")
    assert (second["smallest"], second["confirmed"], second["sure"]) == ("", None, ["not verified yet"])


def test_a_failure_that_is_folded_is_not_pending(tmp_path):
    key = Key("kernel", "accuracy", "bound", "lse", "fp16", 2)
    folded = explained().folded[0]
    record = finding(folded=(type(folded)(key, "fv1", "lse is off", "the same"),))
    run = write_run(tmp_path / "run", (failing(output="lse"), failing(output="dq"), failing(output="dv")), (record,))
    _, _, path = write_report(run)
    assert [p["key"]["output"] for p in json.loads(path.read_bytes())["pending"]] == ["dv"]


def test_junit_names_the_cause_of_a_folded_failure(tmp_path):
    verdict = failing().verdicts[0]
    failed = result(verdicts=(type(verdict)("padding", verdict.status, "o", "padding", message="o differs"),))
    write_junit(write_run(tmp_path / "run", (failed,), (explained(),)), tmp_path / "junit.xml")
    assert f"the same cause as: {TITLE}" in (tmp_path / "junit.xml").read_text(encoding="utf-8").replace("&gt;", ">")


def test_a_condition_that_the_sentence_leaves_out_is_put_into_the_title():
    diagnosis = Diagnosis("scale-twice", "The scale is applied twice.", conditions=("dim_qk == 128", "causal != no"))
    assert card_of(finding(diagnosis=diagnosis)).title == (
        "The scale is applied twice, only where dim_qk == 128 and causal != no"
    )


def test_without_a_name_the_failure_is_the_title():
    diagnosis = Diagnosis(sentence="No known wrong semantics explains it.", place="dq: every row")
    card = card_of(finding(diagnosis=diagnosis))
    assert (card.title, card.diagnosis) == ("dq is outside its bound", "No known wrong semantics explains it.")


def test_what_was_read_off_the_kernel_is_the_title_without_a_name():
    said = "The logits in effect hold 0.5 times the bias. 60 of 63 related cases fail."
    diagnosis = Diagnosis(
        sentence=said, conditions=("bias == full",), evidence="Each reading holds.", reading=said[:46]
    )
    card = card_of(finding(diagnosis=diagnosis))
    assert (card.title, card.diagnosis) == ("The logits in effect hold 0.5 times the bias", said)


@pytest.mark.parametrize(("cases", "thin"), [(99, True), (100, False)])
def test_a_pass_over_few_covering_cases_is_called_thin(tmp_path, cases, thin):
    run = write_run(tmp_path / "run", (result(),) * cases, summary=Summary(cases, 0, cases, 0, 0, 1.0, "budget", 0))
    page, markdown, data = (path.read_text(encoding="utf-8") for path in write_report(run))
    for text in (Page(page).text, markdown, json.loads(data)["title"]):
        assert (f"No findings in {cases} cases on Triton's CPU interpreter, thin" in text) == thin
    assert ("fewer than 100 are no more than a first look" in markdown) == thin
    assert json.loads(data)["thin"] == thin


def test_the_form_is_a_table(tmp_path):
    form = "declared: exp=exp2, stored=(1, 2); assumed: p=bf16"
    run = write_run(tmp_path / "run", (result(),), record=header(form={"kernel": form}))
    page, markdown, data = (path.read_text(encoding="utf-8") for path in write_report(run))
    assert "exp exp2 declared" in Page(page).text
    assert "stored (1, 2) declared" in Page(page).text
    assert "| `form of kernel: declared exp` | `exp2` |" in markdown
    assert json.loads(data)["subjects"]["kernel"]["form_table"][2] == {"part": "assumed", "name": "p", "value": "bf16"}
