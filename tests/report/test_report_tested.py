"""What the judged cases covered, and what they left out."""

import json

import pytest

from flashverify.judge.verdict import Status, Verdict
from flashverify.report import write_report
from flashverify.report.axes import axes_of
from flashverify.report.form_table import form_rows
from flashverify.report.tested import AxesSeen
from tests.report.page import Page
from tests.report.synthetic import result, write_run

CASES = (
    "fv1 heads_q=8 heads_kv=2 seq_q=40 seq_k=7 dim_qk=64 dim_v=64 dtype=fp32 causal=top-left launch=block_m:16",
    "fv1 heads_q=2 heads_kv=2 seq_q=3 seq_k=90 dim_qk=64 dim_v=32 dtype=bf16 window=3,0 softcap=30 backward=no",
    "fv1 seq_q=3 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 klen=7 layout=bshd launch=block_m:128",
)


def table(*cases, evidence=("interpreter",)):
    tested = AxesSeen()
    for case in cases:
        tested.add(axes_of(case))
    return {row.axis: (row.tested, row.missing) for row in tested.table(evidence)}


def test_every_axis_says_what_was_tested_and_what_was_not():
    rows = table(*CASES)

    assert rows["Data types"] == ("bf16 (1), fp32 (2)", "fp16")
    assert rows["Masks"][0] == "causal top-left (1), window (1), key lengths (1)"
    assert "causal bottom-right" in rows["Masks"][1]
    assert "tree" in rows["Masks"][1]
    assert rows["Modifiers of logits and weights"][0] == "softcap (1)"
    assert rows["Layouts"] == ("bhsd (2), bshd (1)", "paged")
    assert rows["Regimes of values"][0] == "normal (3)"
    assert rows["Head dims"] == ("8 (1), 64 (1), 64 with 32 (1)", "above 64")
    assert rows["Query heads per key head"] == ("1 (2), 4 (1)", "")
    assert rows["Longest sequence"] == ("40 rows, 90 keys", "anything longer")
    assert rows["Launch values"] == ("block_m 16, 128", "")
    assert rows["Gradients"] == ("with (2), without (1)", "")
    assert rows["Device"] == ("Triton's CPU interpreter", "a GPU")


def test_what_a_plain_run_leaves_out():
    rows = table("fv1 seq_q=3 backward=no", evidence=("NVIDIA H200 (sm_90)",))

    assert rows["Masks"][0] == "none"
    assert rows["Query heads per key head"][1] == "more than one"
    assert rows["Gradients"] == ("without (1)", "the backward")
    assert rows["Launch values"][0] == "those that the subject chooses"
    assert rows["Device"] == ("NVIDIA H200 (sm_90)", "")


def test_pairs_that_met_that_did_not_and_that_cannot_are_listed():
    rows = table(
        "fv1 seq_q=3 seq_k=9 causal=top-left klen=7",
        "fv1 seq_q=3 seq_k=9 causal=bottom-right softcap=2",
        "fv1 seq_q=3 seq_k=9 tree=-1,0,1",
    )
    tested, missing = rows["Two of these masks and modifiers together"]

    assert tested == "2 of 9 pairs; no case can have causal bottom-right with causal top-left"
    assert missing == (
        "causal bottom-right with key lengths, causal bottom-right with tree, causal top-left with softcap, "
        "causal top-left with tree, key lengths with softcap, key lengths with tree, softcap with tree"
    )
    assert "Two of these masks and modifiers together" not in table("fv1 seq_q=3 backward=no")


def test_every_regime_of_a_mixed_case_counts_that_a_head_has():
    three = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=3 regime=ties,zeros,overflow,normal,spikes"
    tested, missing = table(three, "fv1 seq_q=3 regime=ties")["Regimes of values"]

    assert tested == "zeros (1), normal (1), ties (2), overflow (1)"
    assert missing.endswith("subnormal-o, shifted, few-keys")


def test_a_long_list_of_values_is_cut_in_its_middle():
    tested = table(*(f"fv1 dim_qk={8 * n} dim_v={8 * n}" for n in range(1, 31)))["Head dims"][0]
    assert tested.startswith("8 (1), 16 (1)")
    assert ", … 18 more …, " in tested
    assert tested.endswith("240 (1)")


def test_only_judged_cases_count(tmp_path):
    refused = result(CASES[1], verdicts=(Verdict("supports", Status.UNSUPPORTED, message="no"),), stats=())
    broken = result(CASES[2], verdicts=(Verdict("harness", Status.ERROR, message="no"),), stats=())
    run = write_run(tmp_path / "run", (result(CASES[0]), refused, broken))
    page, markdown, data = (path.read_text(encoding="utf-8") for path in write_report(run))

    rows = {row["axis"]: row for row in json.loads(data)["subjects"]["kernel"]["tested"]}
    assert rows["Data types"] == {"axis": "Data types", "tested": "fp32 (1)", "missing": "fp16, bf16"}
    assert "Data types fp32 (1) fp16, bf16" in Page(page).text
    assert "| Data types | fp32 (1) | fp16, bf16 |" in markdown
    assert "1 count as coverage: thin" in Page(page).text


@pytest.mark.parametrize("text", ["no pairs", "declared: exp", "a: b=1; c: d", "a: 1=2"])
def test_a_form_in_other_words_is_shown_as_it_is(text):
    assert form_rows(text) == [("", "", text)]


def test_no_form_has_no_lines():
    assert form_rows("") == []
