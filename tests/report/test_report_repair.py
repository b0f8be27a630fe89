"""Changes that make a subject right, on the card in the terminal, on the pages and in JSON."""

import json

import msgspec
import pytest

from flashverify.campaign.card.content import card_of
from flashverify.campaign.card.lines import card_lines, diagnosis_lines
from flashverify.campaign.card.repair_words import repair_title
from flashverify.judge.record import Diagnosis, Repair
from flashverify.report import write_junit, write_report
from tests.report.page import Page
from tests.report.synthetic import explained, failing, finding, write_run

CHANGED = Repair(
    "device/forward.py",
    112,
    "forward_kernel",
    "if dropout.keep_share:",
    "if dropout.keep_share is not None:",
    28,
    27,
)
LEFT_OUT = Repair("device/walk.py", 9, "walk", "total *= 2", "", 1, 1)
LONG = "a * " * 40
ONE_OF_THREE = Repair(
    "walk.py", 5, "walk", f"w = where(\n    {LONG}b,\n\tc)", f"w = where(\n    {LONG}d,\n\tc)", 12, 12
)
SENTENCE = "No known wrong semantics explains it."


def repaired(*repairs):
    return finding(diagnosis=Diagnosis(sentence=SENTENCE, place="dq: every row", repairs=repairs))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    named = explained(diagnosis=msgspec.structs.replace(explained().diagnosis, repairs=(LEFT_OUT,)))
    run = write_run(tmp_path_factory.mktemp("repairs") / "run", (failing(),), (repaired(CHANGED, ONE_OF_THREE), named))
    return [path.read_text(encoding="utf-8") for path in write_report(run)]


def test_the_terminal_says_what_is_changed_and_on_how_many_cases_it_was_tried():
    lines = card_lines(card_of(repaired(CHANGED, LEFT_OUT)))

    assert lines[0] == "device/forward.py:112: right with `if dropout.keep_share is not None:`"
    assert lines[1].startswith("  dq is outside its bound, ")
    start = lines.index("  where: dq: every row") + 1
    assert lines[start : start + 6] == [
        "  repair: device/forward.py:112 (forward_kernel) changed so, it is right in 28 further cases, of which 27 fail without:",
        "    - if dropout.keep_share:",
        "    + if dropout.keep_share is not None:",
        "  or, by itself: device/walk.py:9 (walk) without this line, it is right in 1 further case, which fails without:",
        "    - total *= 2",
        "  (changes that make it right, each by itself; not necessarily what was meant)",
    ]


def test_the_lines_of_a_change_are_not_wrapped_and_those_that_stay_have_no_mark():
    lines = card_lines(card_of(repaired(ONE_OF_THREE)), width=60)

    start = lines.index("      w = where(")
    assert lines[start + 1 : start + 4] == [f"    -     {LONG}b,", f"    +     {LONG}d,", "          c)"]
    assert "in 12 further cases, all of which fail without:" in " ".join(" ".join(lines).split())
    assert all(len(line) <= 60 for line in lines[:start])


def test_a_name_or_a_reading_is_the_title_before_a_repair():
    named = msgspec.structs.replace(explained().diagnosis, repairs=(CHANGED,))
    read = Diagnosis(sentence="The bias counts twice. More.", reading="The bias counts twice", repairs=(CHANGED,))

    assert card_of(finding(diagnosis=named)).title.startswith("The causal mask is shifted by one")
    assert card_of(finding(diagnosis=read)).title == "The bias counts twice"
    assert card_of(repaired()).title == "dq is outside its bound"


@pytest.mark.parametrize(
    ("repair", "title"),
    [
        (LEFT_OUT, "device/walk.py:9: right without `total *= 2`"),
        (ONE_OF_THREE, "walk.py:5 (walk): right with one change"),
        (msgspec.structs.replace(LEFT_OUT, before=f"x = {LONG}1"), "device/walk.py:9 (walk): right without this line"),
        (msgspec.structs.replace(LEFT_OUT, before="f(\n  1)"), "device/walk.py:9 (walk): right without these lines"),
        (msgspec.structs.replace(CHANGED, after="a = 1\nb = 2"), "device/forward.py:112 (forward_kernel): right with one change"),
        (msgspec.structs.replace(CHANGED, after="x" * 64), f"device/forward.py:112: right with `{'x' * 64}`"),
        (msgspec.structs.replace(CHANGED, after="x" * 65), "device/forward.py:112 (forward_kernel): right with one change"),
    ],
)  # fmt: skip
def test_a_title_quotes_the_one_changed_line_where_that_is_short(repair, title):
    assert repair_title(repair) == title
    assert len(title) <= 100


def test_what_replay_and_a_running_search_print_of_a_diagnosis_has_the_lines():
    assert diagnosis_lines(repaired(CHANGED).diagnosis)[-4:-1] == [
        "repair: device/forward.py:112 (forward_kernel) changed so, it is right in 28 further cases, of which 27 fail without:",
        "  - if dropout.keep_share:",
        "  + if dropout.keep_share is not None:",
    ]


def test_the_page_shows_old_lines_as_gone_and_new_ones_as_put_in(texts):
    page = Page(texts[0])

    for part in (
        "Changes that make it right, each by itself; not necessarily what was meant",
        "device/forward.py:112 (forward_kernel) changed so, it is right in 28 further cases, of which 27 fail without:",
        "or, by itself, walk.py:5 (walk) changed so",
        "A change that makes it right; not necessarily what was meant",
        "device/walk.py:9 (walk) without this line",
    ):
        assert part in page.text
    assert [a["class"] for tag, a in page.tags if tag == "span" and a.get("class") in ("gone", "put", "kept")] == [
        *("gone", "put"),
        *("kept", "gone", "put", "kept"),
        "gone",
    ]
    assert '<span class="put">+ if dropout.keep_share is not None:</span>' in texts[0]
    assert "pre.diff { padding: 8px 0; overflow-x: auto; white-space: pre;" in texts[0]


def test_markdown_has_a_block_of_changed_lines(texts):
    first = (
        "`device/forward.py:112 (forward_kernel)` changed so, it is right in 28 further cases, of which 27 fail without:"
        "\n\n```diff\n- if dropout.keep_share:\n+ if dropout.keep_share is not None:\n```\n"
    )
    assert first in texts[1]
    assert "\nor, by itself, `walk.py:5 (walk)` changed so" in texts[1]
    assert "```diff\n- total *= 2\n```" in texts[1]


def test_json_has_the_record_of_each_change(texts):
    first, second = json.loads(texts[2])["findings"]

    assert first["title"] == "device/forward.py:112: right with `if dropout.keep_share is not None:`"
    assert first["diagnosis"]["repairs"][0] == msgspec.to_builtins(CHANGED)
    assert [each["line"] for each in first["diagnosis"]["repairs"]] == [112, 5]
    assert second["diagnosis"]["repairs"] == [msgspec.to_builtins(LEFT_OUT)]


def test_junit_has_the_lines_of_the_card(tmp_path):
    write_junit(write_run(tmp_path / "run", (failing(),), (repaired(CHANGED),)), tmp_path / "junit.xml")

    assert "+ if dropout.keep_share is not None:" in (tmp_path / "junit.xml").read_text(encoding="utf-8")
