"""Cases outside a declaration: drawn by one property, refused, right or silently wrong, and never a failure."""

import json
import math
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from flashverify import cli
from flashverify.campaign import toolkit
from flashverify.campaign.commands import campaign
from flashverify.campaign.refusals import asking
from flashverify.campaign.refusals.draws import only_property, outside_cases, widened
from flashverify.campaign.refusals.judging import judge_outside
from flashverify.campaign.refusals.record import Outside, Refusals, read_refusals, write_refusals
from flashverify.campaign.refusals.words import counts_text, refusal_lines
from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import LOGIT_MODIFIERS
from flashverify.case.text import parse_case
from flashverify.errors import NoVerdictError, UsageError
from flashverify.subjects import Supports, subject

ROOT = Path(__file__).resolve().parents[2]
SQUARE = Supports(dtypes=("fp16",), masks=("causal",), causal=("top-left",), gqa=False, square=True, seq_multiple=8)


def attention(p):
    """Causal from the top left, whatever is asked."""
    s = (p.q.float() @ p.k.float().mT) * p.scale
    if p.causal is not None:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return (s.softmax(-1) @ p.v.float()).to(p.q.dtype), s.logsumexp(-1)


silent = subject(supports=SQUARE)(attention)


@subject(supports=SQUARE)
def refusing(p):
    if p.q.dtype != torch.float16 or p.q.shape[2] != p.k.shape[2] or p.case.mask.parts() - {"causal"}:
        raise ValueError("fp16 and as many rows as keys")
    return attention(p)


BASE = "fv1 seq_q=16 seq_k=16 dim_qk=16 dim_v=16 "


@pytest.mark.parametrize(
    ("words", "silently"),
    [
        ("dtype=fp32", "right"),
        ("seq_k=24", "right"),
        ("seq_k=24 causal=bottom-right", "wrong"),
        ("window=1,1", "wrong"),
        ("klen=5", "wrong"),
    ],
)
def test_a_case_outside_is_refused_or_right_or_silently_wrong(words, silently):
    given = dict(word.split("=", 1) for word in (BASE[4:] + words).split())
    case = parse_case("fv1 " + " ".join(f"{name}={value}" for name, value in given.items()))

    assert judge_outside(silent, case).outcome == silently
    found = judge_outside(refusing, case)
    assert found.outcome == "refused"
    assert "fp16 and as many rows as keys" in found.message
    assert judge_outside(refusing, parse_case(BASE.strip())).outcome == "right"


@pytest.mark.slow
def test_every_drawn_case_leaves_the_declaration_by_exactly_one_property():
    found = list(outside_cases(SQUARE, device="cpu", seed=1, each=1))

    reasons = [reason for _, reason in found]
    assert all(only_property(SQUARE, case) == reason for case, reason in found)
    for words in (
        "dtype=",
        "heads_q",
        "with seq_k=",
        "multiples of 8",
        "window",
        "softcap",
        "sink",
        "dropout=",
        "causal=bottom-right",
    ):
        assert any(words in reason for reason in reasons), words
    assert only_property(SQUARE, parse_case(BASE.strip())) is None
    assert only_property(SQUARE, parse_case(BASE + "dtype=fp32 window=1,1")) is None


def test_a_declaration_that_has_everything_has_nothing_outside():
    masks = tuple(part.name for part in PARTS if part.role != "alignment")
    wide = Supports(
        masks=masks, logits=tuple(x.name for x in LOGIT_MODIFIERS), dropout=True, empty=True, strided=True, transposed=True,
            dlse=True,
        window_alignments=("top-left", "bottom-right"), entry_trees=True, banded_trees=True, scales=("positive", "zero", "negative"),
    )  # fmt: skip

    assert not list(widened(wide))


def test_the_record_is_stored_and_told(tmp_path):
    cases = [
        ("wrong", "dropout=0.1"),
        ("wrong", "dropout=0.9"),
        ("died", "dtype=fp32"),
        ("refused", "gap=3"),
        ("right", "gap=4"),
    ]
    record = Refusals(
        tuple(Outside("mine", f"fv1 seed={n}", reason, outcome, "why") for n, (outcome, reason) in enumerate(cases))
    )
    write_refusals(tmp_path, record)

    assert read_refusals(tmp_path) == record
    assert [each.outcome for each in record.bad] == ["wrong", "wrong", "died"]
    assert counts_text(record) == (
        "5 cases outside the declaration: 1 refused with an exception, 1 right, 2 silently wrong, 1 ended its process"
    )
    lines = refusal_lines(record)
    assert sum("silently wrong: mine: dropout" in line for line in lines) == 1
    assert "None of these cases is a failure" in lines[-1]
    (tmp_path / "refusals.json").write_text("{")
    assert read_refusals(tmp_path) is None


def test_deaths_and_hangs_are_listed_apart_and_the_next_process_goes_on(monkeypatch):
    """The processes are of a module that speaks as the real one does, and imports nothing."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "campaign"))
    monkeypatch.setattr(asking, "CHILD", "fake_outside")

    found = asking.ask_outside(("mine",), device="cpu", seed=1, case_limit=1.0)

    assert [(each.case, each.outcome) for each in found.cases] == [
        ("a", "right"), ("b", "hung"), ("c", "wrong"), ("d", "died"), ("e", "refused"),
    ]  # fmt: skip
    assert "exit" in found.cases[3].message
    assert not found.unfinished
    with pytest.raises(NoVerdictError, match="unknown outside its declaration: the process ended with"):
        asking.ask_outside(("unknown",), device="cpu", seed=1)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_process_runs_a_subject_outside_its_declaration(tmp_path, monkeypatch):
    (tmp_path / "kernels.py").write_text("""
from flashverify import Supports, subject
from tests.campaign.test_refusals import SQUARE, attention
mine = subject(supports=SQUARE, name="mine")(attention)
""")
    for folder in (ROOT, tmp_path):
        monkeypatch.syspath_prepend(str(folder))

    found = asking.ask_outside(("kernels:mine",), device="cpu", seed=1, each=1)

    assert {"right", "wrong"} <= found.counts.keys()
    assert not found.unfinished
    assert all(only_property(SQUARE, parse_case(each.case)) == each.property for each in found.cases)


def found_outside(outcome):
    return Refusals((Outside("clean", "fv1 seed=3", "dropout=0.5", outcome, "o[0] is 2"),))


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("wrong", 4),
        pytest.param("hung", 4, marks=pytest.mark.thorough),
        ("refused", 0),
        pytest.param("right", 0, marks=pytest.mark.thorough),
    ],
)
def test_a_clean_run_has_an_exit_code_of_its_own_where_something_outside_goes_wrong(
    outcome, code, monkeypatch, tmp_path
):
    """A silent wrong result is no failure: the verdict, the stored summary and the findings say nothing of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "campaign"))
    monkeypatch.setattr(toolkit, "BUNDLED", "fake_toolkit:toolkit")
    monkeypatch.setattr(campaign, "ask_outside", lambda subjects, **_: found_outside(outcome))
    arguments = ("run", "--subject", "clean", "--device", "cpu", "--workers", "1", "--out", "r", "--refusals", "--json")

    done = CliRunner().invoke(cli.main, arguments)

    told = json.loads(done.stdout)
    assert (done.exit_code, told["exit_code"], told["verdict"][:4], told["findings"]) == (code, code, "PASS", [])
    assert told["refusals"]["cases"][0]["outcome"] == outcome
    report = json.loads(Path("r/report.json").read_text())
    assert (report["verdict"], report["refusals"]["counts"]) == ("clean", {outcome: 1})
    for page in ("r/report.html", "r/report.md"):
        text = Path(page).read_text()
        assert ("dropout=0.5" in text) == (code == 4)
        assert "1 case outside the declaration" in text


def test_the_plan_outside_is_the_only_new_name():
    from flashverify.campaign.plan_name import PlanName

    assert str(PlanName.parse("outside")) == "outside"
    with pytest.raises(UsageError, match="run, fuzz, outside or only:CHECK"):
        PlanName.parse("outside:accuracy")
